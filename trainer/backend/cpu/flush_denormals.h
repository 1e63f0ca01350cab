// A momentum that decays without a gradient ends in denormal numbers, on which many processors are a hundred times
// slower; they are as good as 0.
#ifndef LENET_TRAINER_BACKEND_CPU_FLUSH_DENORMALS_H_
#define LENET_TRAINER_BACKEND_CPU_FLUSH_DENORMALS_H_

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lenet::cpu {

// While it lives, this thread's float operations take and give 0 for denormals.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(Read()) { Write(saved_ | kFlush); }
  ~FlushDenormals() { Write(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kFlush = 0x8040;  // FTZ and DAZ of MXCSR
  static uint64_t Read() { return _mm_getcsr(); }
  static void Write(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ of FPCR
  static uint64_t Read() {
    uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void Write(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t Read() { return 0; }
  static void Write(uint64_t) {}
#endif

  const uint64_t saved_;
};

}  // namespace lenet::cpu

#endif  // LENET_TRAINER_BACKEND_CPU_FLUSH_DENORMALS_H_
