// LENET_SANITIZED: defined where a sanitizer brings an allocator of its own.
#ifndef LENET_TESTS_SUPPORT_SANITIZED_H_
#define LENET_TESTS_SUPPORT_SANITIZED_H_

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LENET_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LENET_SANITIZED
#endif
#endif

#endif  // LENET_TESTS_SUPPORT_SANITIZED_H_
