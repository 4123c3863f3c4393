/* Preloaded into lobster by tests: counts the system calls that write below one
 * directory, and lets one of them be the last, or fail.
 *
 * LOBSTER_SHIM=<n>:<how>:<directory>, where <how> is
 *   kill  the process dies before the n-th call
 *   torn  it dies after half of the n-th call's bytes (after the call, if it writes none)
 *   cut   the power fails before the n-th call: what was written and not synced is gone
 *   some  the same, but every second of those writes had got through
 *   log   the same, but another process had synced the write-ahead log that both write to
 *   eio   the n-th call fails
 *   full  the n-th call and all later ones that take space fail: the disk is full
 *   count nothing happens
 * LOBSTER_SHIM_COUNT=<file> gets the number of calls, and how many of them were syncs,
 * when the process ends by itself.
 * LOBSTER_SHIM_CLOCK=<seconds> is added to what the wall clock says.
 * LOBSTER_SHIM_SCARCE=<file>: while the file exists, no process and no thread can be started. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const char *scarce;
static long nth;
static char how[8], dir[PATH_MAX];
static size_t dir_len;
static long passed, synced, later;

__attribute__((constructor)) static void begin(void) {
    const char *plan = getenv("LOBSTER_SHIM"), *clock = getenv("LOBSTER_SHIM_CLOCK");
    if (clock) later = atol(clock);
    scarce = getenv("LOBSTER_SHIM_SCARCE");
    if (plan && sscanf(plan, "%ld:%7[a-z]:%4095s", &nth, how, dir) == 3) dir_len = strlen(dir);
}

__attribute__((destructor)) static void end(void) {
    const char *file = getenv("LOBSTER_SHIM_COUNT");
    if (!file || !dir_len || !passed) return;
    FILE *out = fopen(file, "w");
    if (out) fprintf(out, "%ld %ld\n", passed, synced), fclose(out);
}

enum verdict { PASS, FAIL, HALF };

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* What a power cut would undo: bytes of a file, or a name. */
struct change {
    struct change *before;
    dev_t dev;          /* of the file, or of the directory that has the name */
    ino_t ino;
    long number;
    int fd;
    off_t at, size;     /* where, and how long the file was */
    size_t len;
    char *old;          /* what was there, followed by zeros */
    char name[PATH_MAX];
};

static struct change *unsynced;
static long changes;
static pthread_mutex_t list = PTHREAD_MUTEX_INITIALIZER;
/* Held by whoever writes or syncs, and for good by the power cut. */
static pthread_rwlock_t power = PTHREAD_RWLOCK_INITIALIZER;

static int cuts_power(void) { return !strcmp(how, "cut") || !strcmp(how, "some") || !strcmp(how, "log"); }

static void note(struct change *change) {
    pthread_mutex_lock(&list);
    change->number = changes++;
    change->before = unsynced;
    unsynced = change;
    pthread_mutex_unlock(&list);
}

static void note_bytes(int fd, off_t at, size_t len) {
    char path[64];
    struct stat file;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct change *change = calloc(1, sizeof *change);
    change->fd = open(path, O_RDWR | O_CLOEXEC);
    if (change->fd < 0 || fstat(fd, &file)) abort();
    change->dev = file.st_dev, change->ino = file.st_ino, change->size = file.st_size;
    change->at = at < 0 ? lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR) : at;
    change->len = len, change->old = calloc(1, len ? len : 1);
    if (pread(change->fd, change->old, len, change->at) < 0) abort();
    note(change);
}

static void note_name(const char *name) {
    struct stat parent;
    struct change *change = calloc(1, sizeof *change);
    snprintf(change->name, sizeof change->name, "%s", name);
    char *slash = strrchr(change->name, '/');
    *slash = 0;
    if (stat(change->name, &parent)) abort();
    *slash = '/';
    change->fd = -1, change->dev = parent.st_dev, change->ino = parent.st_ino;
    note(change);
}

/* What was noted before `number` about this file or directory is durable. */
static void forget(const struct stat *file, long number) {
    pthread_mutex_lock(&list);
    for (struct change **at = &unsynced; *at;) {
        struct change *change = *at;
        if (change->dev == file->st_dev && change->ino == file->st_ino && change->number < number) {
            *at = change->before;
            if (change->fd >= 0) close(change->fd);
            free(change->old), free(change);
        } else at = &change->before;
    }
    pthread_mutex_unlock(&list);
}

/* The path of an open file; of none, or of one that has no path, its length is 0. */
static ssize_t path_of(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, PATH_MAX - 1);
    if (len < 0) len = 0;
    path[len] = 0;
    return len;
}

static int is_log(int fd) {
    char path[PATH_MAX];
    ssize_t len = path_of(fd, path);
    return len > 4 && !strcmp(path + len - 4, "-wal");
}

static void cut_the_power(void) {
    pthread_rwlock_wrlock(&power);
    int all = strcmp(how, "some"), log = !strcmp(how, "log");
    for (struct change *change = unsynced; change; change = change->before) {
        if (!all && change->number % 2) continue;
        if (log && is_log(change->fd)) continue;
        if (change->fd < 0) { REAL(unlink)(change->name); continue; }
        REAL(pwrite)(change->fd, change->old, change->len, change->at);
        if (all) REAL(ftruncate)(change->fd, change->size);
    }
}

static void die(void) {
    if (cuts_power()) cut_the_power();
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
    if (!strcmp(how, "kill") || cuts_power()) die();
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
    char path[PATH_MAX];
    ssize_t len = path_of(fd, path);
    return inside(path) && !(len > 4 && !strcmp(path + len - 4, "-shm"));
}

#define WRITES(name, params, half, place, length, ...)           \
    ssize_t name params {                                        \
        __typeof__(&name) real = REAL(name);                     \
        int mine = ours(fd);                                     \
        if (mine) switch (verdict(1)) {                          \
            case FAIL: return -1;                                \
            case HALF: half; die();                              \
            case PASS: break;                                    \
        }                                                        \
        if (!mine || !cuts_power()) return real(__VA_ARGS__);    \
        pthread_rwlock_rdlock(&power);                           \
        note_bytes(fd, place, length);                           \
        ssize_t result = real(__VA_ARGS__);                      \
        pthread_rwlock_unlock(&power);                           \
        return result;                                           \
    }

static size_t length_of(const struct iovec *parts, int count) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    return length;
}

WRITES(write, (int fd, const void *bytes, size_t len), (void)!real(fd, bytes, len / 2), -1, len, fd, bytes, len)
WRITES(pwrite, (int fd, const void *bytes, size_t len, off_t at), (void)!real(fd, bytes, len / 2, at), at, len, fd, bytes, len, at)
WRITES(pwrite64, (int fd, const void *bytes, size_t len, off64_t at), (void)!real(fd, bytes, len / 2, at), at, len, fd, bytes, len, at)
WRITES(writev, (int fd, const struct iovec *parts, int count), (void)!real(fd, parts, count / 2), -1, length_of(parts, count), fd, parts, count)

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

/* A sync that has begun when the power fails never returns. */
#define SYNCS(name)                                              \
    int name(int fd) {                                           \
        __typeof__(&name) real = REAL(name);                     \
        struct stat file;                                        \
        int mine = sync_of_ours(fd);                             \
        if (mine) switch (verdict(0)) {                          \
            case FAIL: return -1;                                \
            case HALF: (void)!real(fd); die();                   \
            case PASS: break;                                    \
        }                                                        \
        if (!mine || !cuts_power()) return real(fd);             \
        pthread_rwlock_rdlock(&power);                           \
        pthread_mutex_lock(&list);                               \
        long number = changes;                                   \
        pthread_mutex_unlock(&list);                             \
        int result = real(fd);                                   \
        if (!result && !fstat(fd, &file)) forget(&file, number); \
        pthread_rwlock_unlock(&power);                           \
        return result;                                           \
    }

SYNCS(fsync)
SYNCS(fdatasync)
CHANGES(ftruncate, (int fd, off_t len), ours(fd), 0, fd, len)
CHANGES(ftruncate64, (int fd, off64_t len), ours(fd), 0, fd, len)

/* A name that was there before is left as it is now: nothing of ours replaces durable names. */
#define NAMES(name, space)                                       \
    int name(const char *from, const char *to) {                 \
        __typeof__(&name) real = REAL(name);                     \
        if (inside(to)) switch (verdict(space)) {                \
            case FAIL: return -1;                                \
            case HALF: (void)!real(from, to); die();             \
            case PASS: break;                                    \
        }                                                        \
        if (!inside(to) || !cuts_power()) return real(from, to); \
        pthread_rwlock_rdlock(&power);                           \
        int is_new = access(to, F_OK), result = real(from, to);  \
        if (is_new && !result) note_name(to);                    \
        pthread_rwlock_unlock(&power);                           \
        return result;                                           \
    }

NAMES(rename, 0)
NAMES(link, 1)
CHANGES(unlink, (const char *path), inside(path), 0, path)
CHANGES(mkdir, (const char *path, mode_t mode), inside(path), 1, path, mode)

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = REAL(clock_gettime)(id, now);
    if (!result && id == CLOCK_REALTIME) now->tv_sec += later;
    return result;
}

static int is_scarce(void) { return scarce && !access(scarce, F_OK); }

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
    return is_scarce() ? EAGAIN : REAL(posix_spawn)(pid, path, actions, attributes, words, variables);
}

int posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
    return is_scarce() ? EAGAIN : REAL(posix_spawnp)(pid, path, actions, attributes, words, variables);
}

pid_t fork(void) {
    if (!is_scarce()) return REAL(fork)();
    errno = EAGAIN;
    return -1;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *with) {
    return is_scarce() ? EAGAIN : REAL(pthread_create)(thread, attributes, work, with);
}
