// Preload library. EGT_THREADS limits the threads that the program starts through the C++ library. Once the
// file EGT_NO_MEMORY exists, threads except the main one get no memory. Once EGT_NO_PRODUCTS exists, GEMMs
// never end. Once EGT_FROZEN exists, writes to test files never return. The rank EGT_STOPPED_RANK is stopped
// once it has written EGT_STOPPED_AT. flock and process_vm_readv fail with EGT_NO_FLOCK and
// EGT_NO_CROSS_COPIES (errno).
#include <dlfcn.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace {

std::atomic<int> started{0};

bool is_of_program(void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname && std::strstr(info.dli_fname, "libstdc++");
}

/// Simulates a frozen disk (fsfreeze), whose waits a process cannot leave.
void wait_for_frozen_disk(int file) {
  static const char* frozen = std::getenv("EGT_FROZEN");
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (!frozen || ::readlink(link.c_str(), path.data(), path.size() - 1) < 0) return;
  while (std::strstr(path.data(), ".tmp") && access(frozen, F_OK) == 0) pause();
}

/// Sets errno to the value of the environment variable; returns false if it has none.
bool fails(const char* variable) {
  const char* const error = std::getenv(variable);
  if (error) errno = std::atoi(error);
  return error != nullptr;
}

}  // namespace

extern "C" ssize_t write(int file, const void* data, std::size_t bytes) {
  static const auto real = reinterpret_cast<decltype(&write)>(dlsym(RTLD_NEXT, "write"));
  static const char *text = std::getenv("EGT_STOPPED_AT"), *stopped = std::getenv("EGT_STOPPED_RANK"),
                    *rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const ssize_t written = real(file, data, bytes);
  if (text && stopped && rank && std::strcmp(rank, stopped) == 0 &&
      ::memmem(data, bytes, text, std::strlen(text)))
    ::raise(SIGSTOP);
  return written;
}

extern "C" ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t offset) {
  static const auto real = reinterpret_cast<decltype(&pwrite)>(dlsym(RTLD_NEXT, "pwrite"));
  wait_for_frozen_disk(file);
  return real(file, data, bytes, offset);
}

extern "C" int flock(int file, int operation) noexcept {
  static const auto real = reinterpret_cast<int (*)(int, int)>(dlsym(RTLD_NEXT, "flock"));
  return fails("EGT_NO_FLOCK") ? -1 : real(file, operation);
}

extern "C" ssize_t process_vm_readv(pid_t process, const iovec* local, unsigned long locals,
                                    const iovec* remote, unsigned long remotes,
                                    unsigned long flags) noexcept {
  using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  static const auto real = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "process_vm_readv"));
  return fails("EGT_NO_CROSS_COPIES") ? -1 : real(process, local, locals, remote, remotes, flags);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  static const char* most = std::getenv("EGT_THREADS");
  if (most && is_of_program(__builtin_return_address(0)) && started++ >= std::atoi(most)) return EAGAIN;
  return real(thread, attributes, body, argument);
}

extern "C" void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                            const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  static const auto real = reinterpret_cast<decltype(&cblas_sgemm)>(dlsym(RTLD_NEXT, "cblas_sgemm"));
  static const char* file = std::getenv("EGT_NO_PRODUCTS");
  while (file && access(file, F_OK) == 0) pause();
  real(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void* operator new(std::size_t size) {
  static const char* file = std::getenv("EGT_NO_MEMORY");
  const bool is_over = file && access(file, F_OK) == 0;
  void* const memory = is_over && gettid() != getpid() ? nullptr : std::malloc(size);
  if (!memory) throw std::bad_alloc();
  return memory;
}
