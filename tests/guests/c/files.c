/* What a C program does with files, over the C library alone: made, written in pieces, read,
   sought, cut, renamed, listed, linked and removed. /w is a directory that it may write to, /r one
   that it may only read, with `given` in it. Prints a line and gives 0 if all is as it should be. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "failed: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int refused(int result, int with) { return result == -1 && errno == with; }

static void streams(void) {
    FILE *file = fopen("/w/text", "w");
    check(file != NULL, "fopen w");
    for (int line = 0; line < 1000; line++) check(fprintf(file, "line %d\n", line) > 0, "fprintf");
    check(fclose(file) == 0, "fclose");
    check((file = fopen("/w/text", "a+")) != NULL, "fopen a+");
    check(fputs("the end\n", file) >= 0, "fputs");
    check(fseek(file, 0, SEEK_SET) == 0, "fseek");
    char line[64];
    int lines = 0;
    while (fgets(line, sizeof line, file) != NULL) lines++;
    check(lines == 1001 && strcmp(line, "the end\n") == 0, "fgets");
    check(fclose(file) == 0, "fclose");
}

static void descriptors(void) {
    int fd = open("/w/bytes", O_RDWR | O_CREAT | O_EXCL, 0644);
    check(fd >= 0, "open");
    check(refused(open("/w/bytes", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST), "open twice");
    check(write(fd, "0123456789", 10) == 10, "write");
    check(pwrite(fd, "ab", 2, 20) == 2, "pwrite");
    char bytes[32];
    check(pread(fd, bytes, sizeof bytes, 8) == 14, "pread");
    check(memcmp(bytes, "89\0\0\0\0\0\0\0\0\0\0ab", 14) == 0, "what pread gives");
    check(lseek(fd, -2, SEEK_END) == 20, "lseek");
    check(ftruncate(fd, 4) == 0, "ftruncate");
    struct stat found;
    check(fstat(fd, &found) == 0 && found.st_size == 4 && S_ISREG(found.st_mode), "fstat");
    check(fsync(fd) == 0 && close(fd) == 0, "close");
    check(refused(write(fd, "x", 1), EBADF), "write after close");
}

static void names(void) {
    check(mkdir("/w/sub", 0755) == 0, "mkdir");
    check(rename("/w/bytes", "/w/sub/moved") == 0, "rename");
    check(symlink("moved", "/w/sub/link") == 0, "symlink");
    char target[16] = {0};
    check(readlink("/w/sub/link", target, sizeof target) == 5 && !strcmp(target, "moved"), "readlink");
    struct stat found;
    check(stat("/w/sub/link", &found) == 0 && found.st_size == 4, "stat follows");
    check(lstat("/w/sub/link", &found) == 0 && S_ISLNK(found.st_mode), "lstat does not");
    DIR *dir = opendir("/w/sub");
    check(dir != NULL, "opendir");
    int entries = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) entries += entry->d_name[0] != '.';
    check(entries == 2 && closedir(dir) == 0, "readdir");
    check(refused(rmdir("/w/sub"), ENOTEMPTY), "rmdir of a full one");
    check(chdir("/w/sub") == 0, "chdir");
    check(access("moved", F_OK) == 0, "a path from there");
    check(unlink("link") == 0, "unlink");
}

static void bounds(void) {
    char bytes[16] = {0};
    FILE *file = fopen("/r/given", "r");
    check(file != NULL && fread(bytes, 1, sizeof bytes, file) == 5 && !strcmp(bytes, "given"), "read what is given");
    check(fclose(file) == 0, "fclose");
    check(open("/r/given", O_WRONLY) == -1, "write where reading is allowed");
    check(open("/r/new", O_WRONLY | O_CREAT, 0644) == -1, "make a file where reading is allowed");
    check(unlink("/r/given") == -1, "remove where reading is allowed");
    check(open("/w/../etc/passwd", O_RDONLY) == -1, "out of the directory");
    check(open("/etc/passwd", O_RDONLY) == -1, "what is not granted");
    check(symlink("/etc/passwd", "/w/out") == -1 || open("/w/out", O_RDONLY) == -1, "by a link");
    check(refused(open("/w/none", O_RDONLY), ENOENT), "what is not there");
}

int main(void) {
    streams();
    descriptors();
    names();
    bounds();
    puts("files are as C has them");
    return 0;
}
