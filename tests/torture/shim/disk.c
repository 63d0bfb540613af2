/* A disk that a test can make forget and fail; preloaded into the service under attack.
 *
 * Every write, truncation and removal of a file below $DISK_FOLDER is appended to $DISK_LOG with
 * the bytes written, and so is every sync once it has returned. Whoever has the files as they were
 * before can then make up what a power cut would have left of them.
 *
 * A file $DISK_FAULTS/<call> (write, read, sync) that says "<errno> <suffix>" makes that call fail
 * for files of that suffix, for all files without one; <call>-once does so for one call, and is
 * removed by it.
 *
 * It never opens a file of the service: closing one would drop SQLite's locks. The files that
 * SQLite shares through memory (-shm) are left alone; they do not outlive the machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { WRITE = 1, TRUNCATE = 2, SYNC = 3, FAILED_SYNC = 4, UNLINK = 5 };

struct record {
    uint32_t kind;
    uint32_t path_bytes;
    uint64_t offset;
    uint64_t data_bytes;
};

#define PATH_BYTES 1024

static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_pread)(int, void *, size_t, off64_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_ftruncate)(int, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);

static char folder[PATH_BYTES];
static size_t folder_bytes;
static const char *faults;
static int log_file = -1;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void prepare(void)
{
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    const char *given = getenv("DISK_FOLDER");
    const char *log_path = getenv("DISK_LOG");
    faults = getenv("DISK_FAULTS");
    if (!given || !log_path || !faults || snprintf(folder, sizeof folder, "%s/", given) < 2)
        abort();
    folder_bytes = strlen(folder);
    log_file = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_file < 0)
        abort();
}

static int ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static int is_ours(const char *path)
{
    return strncmp(path, folder, folder_bytes) == 0 && !ends_with(path, "-shm") &&
           !ends_with(path, ".lock");
}

static int path_of(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    path[length > 0 ? length : 0] = 0;
    return is_ours(path);
}

static void append(const void *bytes, size_t count)
{
    if (count && real_write(log_file, bytes, count) != (ssize_t)count)
        abort(); /* a log with a hole would prove the wrong thing */
}

static void record(enum kind kind, const char *path, uint64_t offset, const void *data, size_t count)
{
    struct record head = {kind, (uint32_t)strlen(path), offset, count};
    append(&head, sizeof head);
    append(path, head.path_bytes);
    append(data, count);
}

/* The error planted for this call on this file, or 0. */
static int planted(const char *call, const char *once, const char *path)
{
    char name[PATH_BYTES + 64], text[128], suffix[64] = "";
    int error = 0;
    snprintf(name, sizeof name, "%s/%s%s", faults, call, once);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    if (sscanf(text, "%d %63s", &error, suffix) < 1 || !ends_with(path, suffix))
        return 0;
    if (*once)
        real_unlink(name);
    return error;
}

static int fails(const char *call, const char *path)
{
    int error = planted(call, "", path);
    if (!error)
        error = planted(call, "-once", path);
    if (error)
        errno = error;
    return error;
}

ssize_t pwrite64(int file, const void *data, size_t count, off64_t offset)
{
    char path[PATH_BYTES];
    if (!path_of(file, path))
        return real_pwrite(file, data, count, offset);
    if (fails("write", path))
        return -1;
    pthread_mutex_lock(&one_at_a_time);
    ssize_t written = real_pwrite(file, data, count, offset);
    int error = errno;
    if (written > 0)
        record(WRITE, path, (uint64_t)offset, data, (size_t)written);
    pthread_mutex_unlock(&one_at_a_time);
    errno = error;
    return written;
}

ssize_t pread64(int file, void *data, size_t count, off64_t offset)
{
    char path[PATH_BYTES];
    if (path_of(file, path) && fails("read", path))
        return -1;
    return real_pread(file, data, count, offset);
}

int ftruncate64(int file, off64_t length)
{
    char path[PATH_BYTES];
    if (!path_of(file, path))
        return real_ftruncate(file, length);
    pthread_mutex_lock(&one_at_a_time);
    int result = real_ftruncate(file, length);
    if (result == 0)
        record(TRUNCATE, path, (uint64_t)length, NULL, 0);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

/* No write slips in between a sync and its record, which stands for all writes before it. The
 * folder itself is synced to keep what was created and removed in it. */
static int sync_by(int (*real_sync)(int), int file)
{
    char path[PATH_BYTES];
    if (!path_of(file, path) && strncmp(path, folder, folder_bytes - 1) != 0)
        return real_sync(file);
    int is_planted = fails("sync", path);
    pthread_mutex_lock(&one_at_a_time);
    int result = is_planted ? -1 : real_sync(file);
    int error = errno;
    record(result == 0 ? SYNC : FAILED_SYNC, path, 0, NULL, 0);
    pthread_mutex_unlock(&one_at_a_time);
    errno = error;
    return result;
}

int unlink(const char *path)
{
    pthread_mutex_lock(&one_at_a_time);
    int result = real_unlink(path);
    if (result == 0 && is_ours(path))
        record(UNLINK, path, 0, NULL, 0);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

int fdatasync(int file) { return sync_by(real_fdatasync, file); }
int fsync(int file) { return sync_by(real_fsync, file); }
ssize_t pwrite(int file, const void *data, size_t count, off_t offset)
{
    return pwrite64(file, data, count, offset);
}
ssize_t pread(int file, void *data, size_t count, off_t offset)
{
    return pread64(file, data, count, offset);
}
int ftruncate(int file, off_t length) { return ftruncate64(file, length); }
