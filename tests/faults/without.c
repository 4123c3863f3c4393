/* Runs a program on a kernel that lacks something, or that forbids it, as far
 * as the program and its children can tell: by a system call filter.
 *
 * without <features, separated by commas> <program> [<argument>...] */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A call fails with `error`; if `argument` is not negative, only when that
 * argument has one of the bits of `mask`, or with `equal` is exactly `mask`. */
struct rule {
    const char *feature;
    int call, error, argument, equal;
    unsigned mask;
};

#define ALWAYS -1, 0, 0

static const struct rule rules[] = {
    /* The flags of clone3 lie in memory, where no filter can look: it is gone
     * as a whole, and callers go on with clone. */
    {"user-namespaces", SYS_clone, EPERM, 0, 0, CLONE_NEWUSER},
    {"user-namespaces", SYS_unshare, EPERM, 0, 0, CLONE_NEWUSER},
    {"user-namespaces", SYS_clone3, ENOSYS, ALWAYS},
    {"network-namespaces", SYS_clone, ENOSPC, 0, 0, CLONE_NEWNET},
    {"network-namespaces", SYS_unshare, ENOSPC, 0, 0, CLONE_NEWNET},
    {"network-namespaces", SYS_clone3, ENOSYS, ALWAYS},
    /* As a profile of AppArmor does: the namespace is made, and useless. */
    {"mounts", SYS_mount, EPERM, ALWAYS},
    {"mounts", SYS_move_mount, EPERM, ALWAYS},
    {"mounts", SYS_open_tree, EPERM, ALWAYS},
    {"mounts", SYS_fsopen, EPERM, ALWAYS},
    /* Before Linux 5.12. */
    {"mount-attributes", SYS_mount_setattr, ENOSYS, ALWAYS},
    {"pivot-root", SYS_pivot_root, EPERM, ALWAYS},
    {"landlock", SYS_landlock_create_ruleset, ENOSYS, ALWAYS},
    {"landlock-disabled", SYS_landlock_create_ruleset, EOPNOTSUPP, ALWAYS},
    {"landlock-restrict", SYS_landlock_restrict_self, EPERM, ALWAYS},
    {"seccomp", SYS_seccomp, EINVAL, ALWAYS},
    {"seccomp", SYS_prctl, EINVAL, 0, 1, PR_SET_SECCOMP},
    {"pidfd", SYS_pidfd_open, ENOSYS, ALWAYS},
    {"clone3", SYS_clone3, ENOSYS, ALWAYS},
    /* Before Linux 5.9. */
    {"close-range", SYS_close_range, ENOSYS, ALWAYS},
};

#define COUNT (sizeof rules / sizeof *rules)

static int is_listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ',')) return 1;
    return 0;
}

int main(int argc, char **argv) {
    struct sock_filter program[COUNT * 6 + 1];
    unsigned short length = 0;
    int known = 0;
    if (argc < 3) return 97;
    for (size_t i = 0; i < COUNT; i++) {
        const struct rule *rule = &rules[i];
        if (!is_listed(argv[1], rule->feature)) continue;
        known = 1;
        int conditional = rule->argument >= 0;
        program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
        program[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->call, 0, conditional ? 3 : 1);
        if (conditional) {
            size_t offset = offsetof(struct seccomp_data, args) + 8 * rule->argument;
            int test = rule->equal ? BPF_JEQ : BPF_JSET;
            program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
            program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, rule->mask, 0, 1);
        }
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | rule->error);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {length, program};
    if (!known && strcmp(argv[1], "nothing")) {
        fprintf(stderr, "without: no such feature: %s\n", argv[1]);
        return 98;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("without");
        return 99;
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 96;
}
