/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "lifeline.h"
#include "log.h"

enum {
    ROOTS_MAX = 3,
    TAKE_TRIES = 100, /* another daemon of the same name that ends at this moment removes the folder under us */
};

#define SOCKET_PREFIX "z-"

bool tsi_name_ok(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(name);

    return len >= 1 && len <= TSOCKET_NAME_MAX && name[0] != '.' && strspn(name, allowed) == len;
}

int tsi_random_hex(char out[TSI_RANDOM_HEX])
{
    unsigned char bytes[(TSI_RANDOM_HEX - 1) / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return tsi_fail_errno(TSOCKET_ESYSTEM, "getrandom");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(&out[2 * i], 3, "%02x", bytes[i]);
    return TSOCKET_OK;
}

/* --- where to look */

/* The folder that the user names, or NULL. */
static const char *named_root(void)
{
    const char *root = getenv("TSOCKET_DIR");

    return root != NULL && root[0] != '\0' ? root : NULL;
}

/* The folders that a daemon of this user may use, the preferred one first. Overlong ones come out cut: see fits(). */
static uint32_t list_roots(char roots[ROOTS_MAX][TSI_PATH_MAX])
{
    const char *own = named_root();
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    unsigned uid = (unsigned)geteuid();
    uint32_t n = 0;

    if (own != NULL) {
        snprintf(roots[n++], TSI_PATH_MAX, "%s", own);
        return n;
    }
    if (xdg != NULL && xdg[0] != '\0')
        snprintf(roots[n++], TSI_PATH_MAX, "%s/tsocket", xdg);
    snprintf(roots[n++], TSI_PATH_MAX, "/tmp/tsocket-%u", uid);
    if (n == 1) /* a daemon that was started from a desktop, a consumer from cron */
        snprintf(roots[n++], TSI_PATH_MAX, "/run/user/%u/tsocket", uid);
    return n;
}

/* `folder`/`file` into `out`, or an error that says how long it may be. */
static int join_path(const char *folder, const char *file, char out[TSI_PATH_MAX])
{
    int len = snprintf(out, TSI_PATH_MAX, "%s/%s", folder, file);

    if (len >= 0 && len < TSI_PATH_MAX)
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_EINVAL,
                    "%s/%s is too long for a Unix socket's path (%d bytes, the limit is %d); set TSOCKET_DIR to a "
                    "shorter folder",
                    folder, file, len, TSI_PATH_MAX - 1);
}

/* --- the daemon's side */

/* A folder that somebody else could write to is no place for sockets. */
static int make_root(const char *root, bool shared)
{
    mode_t mode = shared ? 0711 : 0700;
    struct stat status;

    if (mkdir(root, mode) != 0 && errno != EEXIST)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot make the runtime folder (TSOCKET_DIR sets another one)",
                              root);
    if (lstat(root, &status) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "%s", root);
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 0022) != 0)
        return tsi_fail(
            TSOCKET_EINVAL,
            "%s is no safe runtime folder: it must be a folder of user %u that nobody else can write (it is "
            "owned by %u, mode %04o); remove it or set TSOCKET_DIR to another one",
            root, (unsigned)geteuid(), (unsigned)status.st_uid, (unsigned)status.st_mode & 07777);
    if (shared && (status.st_mode & 0011) != 0011 && chmod(root, 0711) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot open the folder to other users", root);
    return TSOCKET_OK;
}

static int busy(const char *name, int lock_fd)
{
    char pid[32] = "";
    ssize_t len = pread(lock_fd, pid, sizeof(pid) - 1, 0);

    pid[len > 0 ? len : 0] = '\0';
    pid[strcspn(pid, "\n")] = '\0';
    return tsi_fail(TSOCKET_EBUSY,
                    "the name %s is taken by a running daemon, process %s; stop it (tsocketctl stop %s) or choose "
                    "another --name",
                    name, pid[0] != '\0' ? pid : "unknown", name);
}

/* Whether what is at `path` is the file that we have locked. */
static bool is_ours(int lock_fd, const char *path)
{
    struct stat ours, there;

    return fstat(lock_fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

/* TSOCKET_EAGAIN: the folder or the file vanished or was replaced meanwhile; try again. */
static int try_lock(const char *name, const char *folder, const char *path, int *fd_out)
{
    int rc = TSOCKET_EAGAIN;
    int fd;

    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot make the daemon's folder", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno == ENOENT ? TSOCKET_EAGAIN : tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot open the lock", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        rc = errno == EWOULDBLOCK ? busy(name, fd) : tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot lock", path);
    else if (is_ours(fd, path))
        rc = TSOCKET_OK;
    if (rc == TSOCKET_OK)
        *fd_out = fd;
    else
        close(fd);
    return rc;
}

static int write_pid(int fd, const char *path)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%d\n", (int)getpid());

    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)len, 0) == len)
        return TSOCKET_OK;
    return tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot write the lock", path);
}

/* What a killed owner of this name left behind. Only its own kinds of file: a stranger's stays. */
static void sweep(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, "lifeline") == 0 ||
            strncmp(entry->d_name, SOCKET_PREFIX, sizeof(SOCKET_PREFIX) - 1) == 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

static int name_files(const char *root, const char *name, struct tsi_runtime *runtime, char lock_path[TSI_PATH_MAX])
{
    char random[TSI_RANDOM_HEX];
    char file[sizeof(SOCKET_PREFIX) + TSI_RANDOM_HEX];
    int rc = tsi_random_hex(random);

    if (rc == TSOCKET_OK)
        rc = join_path(root, name, runtime->folder);
    if (rc == TSOCKET_OK)
        rc = join_path(runtime->folder, "lifeline", runtime->lifeline);
    if (rc == TSOCKET_OK)
        rc = join_path(runtime->folder, "lock", lock_path);
    if (rc == TSOCKET_OK) {
        snprintf(file, sizeof(file), SOCKET_PREFIX "%.16s", random);
        rc = join_path(runtime->folder, file, runtime->socket);
    }
    return rc;
}

int tsi_runtime_take(const char *name, bool shared, struct tsi_runtime *runtime_out)
{
    struct tsi_runtime runtime = {.lock_fd = -1};
    char roots[ROOTS_MAX][TSI_PATH_MAX];
    char lock_path[TSI_PATH_MAX];
    int rc;

    if (!tsi_name_ok(name))
        return tsi_fail(TSOCKET_EINVAL,
                        "the name \"%s\" is not possible: 1 to %d of A-Z a-z 0-9 . _ - and no dot at the start", name,
                        TSOCKET_NAME_MAX);
    list_roots(roots);
    rc = name_files(roots[0], name, &runtime, lock_path);
    if (rc == TSOCKET_OK)
        rc = make_root(roots[0], shared);
    if (rc != TSOCKET_OK)
        return rc;
    rc = TSOCKET_EAGAIN;
    for (int i = 0; i < TAKE_TRIES && rc == TSOCKET_EAGAIN; i++)
        rc = try_lock(name, runtime.folder, lock_path, &runtime.lock_fd);
    if (rc == TSOCKET_EAGAIN)
        return tsi_fail(TSOCKET_ESYSTEM, "%s: the folder vanishes as fast as it is made", runtime.folder);
    if (rc != TSOCKET_OK)
        return rc;
    sweep(runtime.folder);
    if (chmod(runtime.folder, 0700) != 0)
        rc = tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot close the folder to other users", runtime.folder);
    if (rc == TSOCKET_OK)
        rc = write_pid(runtime.lock_fd, lock_path);
    if (rc == TSOCKET_OK)
        *runtime_out = runtime;
    else
        tsi_runtime_give_back(&runtime);
    return rc;
}

int tsi_runtime_share(const struct tsi_runtime *runtime)
{
    if (chmod(runtime->lifeline, 0666) != 0 || chmod(runtime->socket, 0666) != 0 || chmod(runtime->folder, 0711) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot open the folder to other users", runtime->folder);
    return TSOCKET_OK;
}

void tsi_runtime_give_back(struct tsi_runtime *runtime)
{
    char lock_path[TSI_PATH_MAX];

    if (runtime->lock_fd < 0)
        return;
    if (join_path(runtime->folder, "lock", lock_path) == TSOCKET_OK && is_ours(runtime->lock_fd, lock_path)) {
        sweep(runtime->folder);
        unlink(lock_path); /* while it is locked: whoever opened it meanwhile sees that it is another file now */
        rmdir(runtime->folder);
    }
    close(runtime->lock_fd);
    runtime->lock_fd = -1;
}

void tsi_runtime_watch(struct tsi_runtime *runtime)
{
    char lock_path[TSI_PATH_MAX];

    if (runtime->lost || join_path(runtime->folder, "lock", lock_path) != TSOCKET_OK ||
        (is_ours(runtime->lock_fd, lock_path) && access(runtime->lifeline, F_OK) == 0))
        return;
    runtime->lost = true;
    tsi_log('W',
            "%s was removed or replaced by somebody: no new consumer can find this daemon; those that are attached go "
            "on; start it again when they are done",
            runtime->folder);
}

/* --- the consumer's side */

/*
 * In a folder that everybody may write to (/tmp), only one of our own user or root can be a daemon's; and not a link,
 * which anybody may point at such a one. What the user names is the user's business.
 */
static bool trusted(const char *root)
{
    struct stat status;

    return named_root() != NULL || (lstat(root, &status) == 0 && S_ISDIR(status.st_mode) &&
                                    (status.st_uid == geteuid() || status.st_uid == 0) && (status.st_mode & 0022) == 0);
}

static int connect_in(const char *root, const char *name, int *fd_out)
{
    char folder[TSI_PATH_MAX];
    char path[TSI_PATH_MAX];
    int rc = join_path(root, name, folder);

    if (rc == TSOCKET_OK)
        rc = join_path(folder, "lifeline", path);
    if (rc != TSOCKET_OK)
        return rc;
    return trusted(root) ? tsi_lifeline_connect(path, fd_out) : TSOCKET_ENOTFOUND;
}

int tsi_runtime_connect(const char *name, int *fd_out)
{
    char roots[ROOTS_MAX][TSI_PATH_MAX];
    char searched[ROOTS_MAX * (TSI_PATH_MAX + 2)] = "";
    uint32_t n = list_roots(roots);

    if (!tsi_name_ok(name))
        return tsi_fail(TSOCKET_EINVAL, "\"%s\" is not a daemon's name: 1 to %d of A-Z a-z 0-9 . _ -", name,
                        TSOCKET_NAME_MAX);
    for (uint32_t i = 0; i < n; i++) {
        int rc = connect_in(roots[i], name, fd_out);

        if (rc != TSOCKET_ENOTFOUND)
            return rc;
        snprintf(searched + strlen(searched), sizeof(searched) - strlen(searched), "%s%s", i > 0 ? ", " : "", roots[i]);
    }
    return tsi_fail(TSOCKET_ENOTFOUND,
                    "no running daemon \"%s\"; searched: %s (start tsocketd --name %s, or set TSOCKET_DIR to its "
                    "runtime folder)",
                    name, searched, name);
}

int tsi_runtime_list(char names[][TSOCKET_NAME_MAX + 1], uint32_t max)
{
    char roots[ROOTS_MAX][TSI_PATH_MAX];
    uint32_t n_roots = list_roots(roots);
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_roots; i++) {
        DIR *dir = opendir(roots[i]);
        struct dirent *entry;

        while (dir != NULL && n < max && (entry = readdir(dir)) != NULL) {
            int fd;

            if (!tsi_name_ok(entry->d_name) || connect_in(roots[i], entry->d_name, &fd) != TSOCKET_OK)
                continue;
            close(fd);
            snprintf(names[n++], TSOCKET_NAME_MAX + 1, "%.*s", TSOCKET_NAME_MAX, entry->d_name);
        }
        if (dir != NULL)
            closedir(dir);
    }
    return (int)n;
}
