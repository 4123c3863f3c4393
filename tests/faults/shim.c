/* Preloaded into lobster by tests: counts the system calls that write below one
 * directory, and lets one of them be the last, or fail.
 *
 * LOBSTER_SHIM=<n>:<how>:<directory>, where <how> is
 *   kill  the process dies before the n-th call
 *   torn  it dies after half of the n-th call's bytes (after the call, if it writes none)
 *   eio   the n-th call fails
 *   full  the n-th call and all later ones that take space fail: the disk is full
 *   count nothing happens
 * LOBSTER_SHIM_COUNT=<file> gets the number of calls, and how many of them were syncs,
 * when the process ends by itself.
 * LOBSTER_SHIM_CLOCK=<seconds> is added to what the wall clock says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long nth;
static char how[8], dir[PATH_MAX];
static size_t dir_len;
static long passed, synced, later;

__attribute__((constructor)) static void begin(void) {
    const char *plan = getenv("LOBSTER_SHIM"), *clock = getenv("LOBSTER_SHIM_CLOCK");
    if (clock) later = atol(clock);
    if (plan && sscanf(plan, "%ld:%7[a-z]:%4095s", &nth, how, dir) == 3) dir_len = strlen(dir);
}

__attribute__((destructor)) static void end(void) {
    const char *file = getenv("LOBSTER_SHIM_COUNT");
    if (!file || !dir_len || !passed) return;
    FILE *out = fopen(file, "w");
    if (out) fprintf(out, "%ld %ld\n", passed, synced), fclose(out);
}

enum verdict { PASS, FAIL, HALF };

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* What becomes of the call that is about to be made. */
static enum verdict verdict(int takes_space) {
    long mine = __atomic_add_fetch(&passed, 1, __ATOMIC_SEQ_CST);
    if (!strcmp(how, "full")) {
        if (mine < nth || !takes_space) return PASS;
        errno = ENOSPC;
        return FAIL;
    }
    if (mine != nth) return PASS;
    if (!strcmp(how, "kill")) die();
    if (!strcmp(how, "torn")) return HALF;
    if (!strcmp(how, "eio")) { errno = EIO; return FAIL; }
    return PASS;
}

static int inside(const char *path) {
    return dir_len && path && !strncmp(path, dir, dir_len) && path[dir_len] == '/';
}

/* The shared-memory index of the log is rebuilt after a crash: it is not durable state. */
static int ours(int fd) {
    if (!dir_len) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 0) return 0;
    path[len] = 0;
    return inside(path) && !(len > 4 && !strcmp(path + len - 4, "-shm"));
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRITES(name, params, half, ...)                          \
    ssize_t name params {                                        \
        __typeof__(&name) real = REAL(name);                     \
        if (ours(fd)) switch (verdict(1)) {                      \
            case FAIL: return -1;                                \
            case HALF: half; die();                              \
            case PASS: break;                                    \
        }                                                        \
        return real(__VA_ARGS__);                                \
    }

WRITES(write, (int fd, const void *bytes, size_t len), (void)!real(fd, bytes, len / 2), fd, bytes, len)
WRITES(pwrite, (int fd, const void *bytes, size_t len, off_t at), (void)!real(fd, bytes, len / 2, at), fd, bytes, len, at)
WRITES(pwrite64, (int fd, const void *bytes, size_t len, off64_t at), (void)!real(fd, bytes, len / 2, at), fd, bytes, len, at)
WRITES(writev, (int fd, const struct iovec *parts, int count), (void)!real(fd, parts, count / 2), fd, parts, count)

#define CHANGES(name, params, mine, space, ...)                  \
    int name params {                                            \
        __typeof__(&name) real = REAL(name);                     \
        if (mine) switch (verdict(space)) {                      \
            case FAIL: return -1;                                \
            case HALF: (void)!real(__VA_ARGS__); die();          \
            case PASS: break;                                    \
        }                                                        \
        return real(__VA_ARGS__);                                \
    }

static int sync_of_ours(int fd) {
    if (!ours(fd)) return 0;
    __atomic_add_fetch(&synced, 1, __ATOMIC_SEQ_CST);
    return 1;
}

CHANGES(fsync, (int fd), sync_of_ours(fd), 0, fd)
CHANGES(fdatasync, (int fd), sync_of_ours(fd), 0, fd)
CHANGES(ftruncate, (int fd, off_t len), ours(fd), 0, fd, len)
CHANGES(ftruncate64, (int fd, off64_t len), ours(fd), 0, fd, len)
CHANGES(rename, (const char *from, const char *to), inside(to), 0, from, to)
CHANGES(link, (const char *from, const char *to), inside(to), 1, from, to)
CHANGES(unlink, (const char *path), inside(path), 0, path)
CHANGES(mkdir, (const char *path, mode_t mode), inside(path), 1, path, mode)

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = REAL(clock_gettime)(id, now);
    if (!result && id == CLOCK_REALTIME) now->tv_sec += later;
    return result;
}
