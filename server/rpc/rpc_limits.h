// What clients may ask of the server at once.
#ifndef LENET_SERVER_RPC_RPC_LIMITS_H_
#define LENET_SERVER_RPC_RPC_LIMITS_H_

#include <chrono>
#include <cstddef>

namespace lenet {

// Each is limits.NAME in the configuration, and an error that comes of one has that name, the value and the bound. A
// client is the caller by its name for streams, for calls and connections the other side: an address, or a user on unix
// sockets.
struct RpcLimits {
  // These can change while the server runs; what is over a smaller one stays.
  size_t max_calls = 250;                   // being answered, streams aside
  size_t max_calls_per_client = 100;        // 0: as many as in all
  size_t max_streams = 1000;                // open
  size_t max_streams_per_client = 0;        // 0: no limit
  size_t max_connections = 500;             // open
  size_t max_connections_per_client = 100;  // 0: no limit
  size_t max_resets_per_client = 1000;      // in 10 seconds; 0: no limit
  // These cannot.
  size_t max_calls_per_connection = 100;             // streams among them; what is over it waits in a client's library
  int max_request_bytes = (4 << 20) + (1 << 16);     // the largest request brings weights
  std::chrono::milliseconds max_idle_time{900'000};  // of a connection without a call; 0: no limit
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_RPC_LIMITS_H_
