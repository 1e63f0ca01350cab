"""Frames of HTTP/2 (RFC 9113), for clients that keep to it less than gRPC does."""
import socket
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values):
    """Of the identifiers that this module names."""
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", globals()[name], value)
                                            for name, value in values.items()))


def _literal(name, value):
    """A header without indexing and without Huffman's code; each has fewer than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call_headers(path):
    return b"".join(_literal(name, value) for name, value in (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"),
        ("content-type", "application/grpc")))


def message(payload):
    """As gRPC frames it, not compressed."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


class Connection:
    """What is sent to a server that may close the connection at any time, which is no error here."""

    def __init__(self, address, source="127.0.0.1", greet=True):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 30, (source, 0))
        self.open = True
        if greet:
            self.send(PREFACE + settings())

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.open = False
        return self.open

    def drain(self, seconds=0):
        """Reads what there is; False once the server has closed the connection."""
        try:
            self.socket.settimeout(seconds or 1e-6)
            while data := self.socket.recv(1 << 16):
                del data
            self.open = False
        except (BlockingIOError, TimeoutError):
            pass
        except OSError:
            self.open = False
        self.socket.settimeout(30)
        return self.open

    def reset(self):
        """Closes it so that the other end gets a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()
