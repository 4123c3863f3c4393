/* A command that does what its first word says; nothing of it is nice. What it
   could not do it says as the name of the error, and ends with code 3. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int refused(void) {
  fprintf(stderr, "refused: %s\n", strerror(errno));
  return 3;
}

static int deeper(volatile char *above, int depth) {
  volatile char here[1024];
  here[0] = above[0];
  return depth < 0 ? 0 : deeper(here, depth + 1) + here[0];
}

/* Calls that leave nothing on the stack that the program can see. */
static int (*volatile again)(int);
static int around(int n) { return again(n + 1) + n; }

static int opened(const char *path, int flags) {
  int file = open(path, flags, 0644);
  if (file < 0) return refused();
  char text[64] = {0};
  if (!(flags & O_CREAT) && read(file, text, sizeof text - 1) < 0) return refused();
  printf("got: %s\n", text);
  return 0;
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "", *path = count > 2 ? words[2] : "";
  if (!strcmp(what, "loop"))
    for (volatile uint64_t n = 0;; n++) {}
  if (!strcmp(what, "recurse")) {
    volatile char first[1] = {1};
    return deeper(first, 0);
  }
  if (!strcmp(what, "call")) {
    again = around;
    return around(0);
  }
  if (!strcmp(what, "memory"))
    for (size_t all = 0;; all += 1 << 20) {
      char *volatile more = malloc(1 << 20);
      if (!more) {
        fprintf(stderr, "no more after %zu MiB\n", all >> 20);
        return 3;
      }
      memset(more, 1, 1 << 20);
    }
  if (!strcmp(what, "output")) {
    static char line[65536];
    memset(line, 'x', sizeof line);
    while (fwrite(line, sizeof line, 1, stdout) == 1) {}
    return refused();
  }
  if (!strcmp(what, "talk"))
    while (fputs("so much to say, so much to say, so much to say, so much to say\n", stderr) >= 0) {}
  if (!strcmp(what, "open")) return opened(path, O_RDONLY);
  if (!strcmp(what, "create")) return opened(path, O_WRONLY | O_CREAT);
  if (!strcmp(what, "descriptors")) {
    int most = 0;
    while (open(path, O_RDONLY) >= 0) most++;
    fprintf(stderr, "%d descriptors; ", most);
    return refused();
  }
  if (!strcmp(what, "guess")) {
    /* Descriptors that nobody gave. */
    for (int file = 5; file < 100000; file++) {
      struct stat seen;
      if (!fstat(file, &seen)) return 0;
    }
    return refused();
  }
  if (!strcmp(what, "swap")) {
    /* A directory that becomes a link out between the look and the use. */
    mkdir("/out/d", 0755);
    if (rename("/out/d", "/out/e")) return refused();
    if (symlink("../../..", "/out/d")) return refused();
    return opened("/out/d/etc/passwd", O_RDONLY);
  }
  if (!strcmp(what, "files")) {
    char name[64];
    for (long n = 0;; n++) {
      snprintf(name, sizeof name, "/out/%ld", n);
      int file = open(name, O_WRONLY | O_CREAT, 0644);
      if (file < 0) return refused();
      static char block[1 << 20];
      for (int i = 0; i < 64; i++)
        if (write(file, block, sizeof block) < 0) return refused();
      close(file);
    }
  }
  if (!strcmp(what, "clock")) {
    /* Times its own work: the clock must not tell how long it took. */
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (volatile int n = 0; n < 20000000; n++) {}
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%lld\n", (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec));
    return 0;
  }
  if (!strcmp(what, "pointers")) {
    /* Buffers outside its memory, as an argument of the host. */
    if (write(1, (void *)0xfffffff0u, 4096) < 0) return refused();
    return 0;
  }
  if (!strcmp(what, "sleep")) return (int)sleep(1000000);
  if (!strcmp(what, "abort")) abort();
  fprintf(stderr, "what is %s?\n", what);
  return 2;
}
