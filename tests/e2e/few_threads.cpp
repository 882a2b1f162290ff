// Preloaded: of the threads that the program itself starts (by the C++ library), EGT_THREADS are to be had;
// once the file EGT_NO_MEMORY is there, threads other than the main one get no memory any more; and once the
// file EGT_NO_PRODUCTS is there, products of matrices never end.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<int> started{0};

bool is_of_program(void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname && std::strstr(info.dli_fname, "libstdc++");
}

}  // namespace

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
