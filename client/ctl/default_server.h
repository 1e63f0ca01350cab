// The server that is meant where none is named.
#ifndef LENET_CLIENT_CTL_DEFAULT_SERVER_H_
#define LENET_CLIENT_CTL_DEFAULT_SERVER_H_

#include <string>

namespace lenet::ctl {

// The first socket that exists of this user's own lenetd, $XDG_RUNTIME_DIR/lenet/lenetd.sock or, without that variable,
// lenetd.sock in its state folder, and of the machine's, /run/lenet/lenetd.sock; the latter, too, if there is none.
std::string DefaultServer();

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_DEFAULT_SERVER_H_
