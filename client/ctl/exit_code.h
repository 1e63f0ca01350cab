// The exit codes of lenetctl, as its help and README document them.
#ifndef LENET_CLIENT_CTL_EXIT_CODE_H_
#define LENET_CLIENT_CTL_EXIT_CODE_H_

namespace lenet::ctl {

enum ExitCode {
  kSuccess = 0,
  kError = 1,         // the server refused or failed the call, or the output could not be written
  kUsage = 2,         // the command line is wrong, as lenetctl or the server (INVALID_ARGUMENT) found
  kJobFailed = 3,     // the job that was followed failed
  kJobStopped = 4,    // the job that was followed was stopped
  kUnreachable = 5,   // no server there, or one that is starting or draining (UNAVAILABLE)
  kInterrupted = 130  // Ctrl-C
};

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_EXIT_CODE_H_
