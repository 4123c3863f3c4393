/* Preloaded into the tool that makes a snapshot of QuickJS: to that tool, and to
   nothing else of the process, the clock stands still and all random bytes are
   alike. Hash tables of the snapshot are keyed by the one, Math.random starts
   from the other, and so each build would give other bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* 2000-01-01, where the clock of a step stands, too. */
#define START 946684800

static int is_of_the_tool(void *caller) {
  Dl_info library;
  return dladdr(caller, &library) && strstr(library.dli_fname, "/componentize-qjs.");
}

ssize_t getrandom(void *to, size_t size, unsigned flags) {
  if (is_of_the_tool(__builtin_return_address(0))) {
    memset(to, 0x5a, size);
    return (ssize_t)size;
  }
  ssize_t (*real)(void *, size_t, unsigned) = (ssize_t(*)(void *, size_t, unsigned))dlsym(RTLD_NEXT, "getrandom");
  return real(to, size, flags);
}

int clock_gettime(clockid_t clock, struct timespec *to) {
  if (is_of_the_tool(__builtin_return_address(0))) {
    *to = (struct timespec){.tv_sec = START};
    return 0;
  }
  int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  return real(clock, to);
}
