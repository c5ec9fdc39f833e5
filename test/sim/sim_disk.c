/* sim_disk.c - see sim_disk.h: every change is done at once in the real folder,
 * and kept in a list, from which a crash makes the folder anew. */
#define _GNU_SOURCE
#define SUITE sim_kit
#include "inodes.h"
#include "sim_disk.h"
#include "sim.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

enum { ROOT = 0 };

typedef struct name {
    char name[80];
    int node; /* NO_INODE: the name is gone */
} name;

/* Names in a folder, which come or go together; or a write to a file. */
typedef struct change {
    int node; /* whose flush makes it safe */
    bool safe;
    name name[2];
    int n_name;
    char *data; /* of a write */
    size_t size;
    off_t at;
} change;

static struct {
    char root[PATH_MAX];
    inodes nodes;
    change *change;
    int n_change;
    bool off, full;
    int calls; /* that are left until it is off; 0: it stays on */
    uint64_t room;
    int fail_flush; /* this many flushes from now; 0: none */
} disk;

/* --- what there is -------------------------------------------------------- */

static change *add_change(int node, bool safe)
{
    disk.change =
        realloc(disk.change, (size_t)(disk.n_change + 1) * sizeof *disk.change);
    CHECK(disk.change != NULL);
    disk.change[disk.n_change] = (change){.node = node, .safe = safe};
    return &disk.change[disk.n_change++];
}

static void set_name(change *c, const char *path, int node)
{
    const char *slash = strrchr(path, '/');
    name *n = &c->name[c->n_name++];

    snprintf(n->name, sizeof n->name, "%.79s", slash ? slash + 1 : path);
    n->node = node;
}

static void add_write(int node, bool safe, const void *data, size_t size,
                      off_t at)
{
    change *c = add_change(node, safe);

    c->data = malloc(size + 1);
    CHECK(c->data != NULL);
    memcpy(c->data, data, size);
    c->size = size;
    c->at = at;
}

/* --- calls ---------------------------------------------------------------- */

static int refuse(int e)
{
    errno = e;
    return -1;
}

/* One call more; true: the machine is off. */
static bool is_off(void)
{
    if (disk.calls > 0 && --disk.calls == 0)
        disk.off = true;
    return disk.off;
}

static int disk_open(int folder, const char *path, int flags, mode_t mode)
{
    int fd = NO_INODE;

    if (is_off())
        return refuse(EIO);
    fd = fl_disk_system.open(folder, path, flags, mode);
    if (fd >= 0 && flags & O_CREAT &&
        inodes_folder(&disk.nodes, path) != NO_INODE &&
        inodes_open(&disk.nodes, fd) == NO_INODE)
        set_name(add_change(inodes_folder(&disk.nodes, path), false), path,
                 inodes_add(&disk.nodes, path));
    return fd;
}

static ssize_t disk_write(int fd, const void *data, size_t size)
{
    const int node = inodes_open(&disk.nodes, fd);
    const off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t n;

    if (is_off())
        return refuse(EIO);
    if (disk.full && size > disk.room)
        size = disk.room;
    if (disk.full && size == 0)
        return refuse(ENOSPC);
    n = fl_disk_system.write(fd, data, size);
    if (n > 0 && node != NO_INODE) {
        add_write(node, false, data, (size_t)n, at);
        disk.room -= disk.full ? (uint64_t)n : 0;
    }
    return n;
}

static int disk_flush(int fd)
{
    const int node = inodes_open(&disk.nodes, fd);

    if (is_off() || (disk.fail_flush > 0 && --disk.fail_flush == 0))
        return refuse(EIO);
    for (int i = 0; i < disk.n_change; i++)
        if (disk.change[i].node == node)
            disk.change[i].safe = true;
    return 0;
}

static int disk_make_folder(const char *path, mode_t mode)
{
    int e;

    if (is_off())
        return refuse(EIO);
    e = fl_disk_system.make_folder(path, mode);
    if (e == 0 && inodes_folder(&disk.nodes, path) != NO_INODE)
        set_name(add_change(inodes_folder(&disk.nodes, path), false), path,
                 inodes_add(&disk.nodes, path));
    return e;
}

static int disk_rename(const char *from, const char *to, unsigned flags)
{
    const int a = inodes_at(&disk.nodes, from), b = inodes_at(&disk.nodes, to);
    int e;

    if (is_off())
        return refuse(EIO);
    e = fl_disk_system.rename(from, to, flags);
    if (e == 0 && a != NO_INODE) {
        change *c = add_change(inodes_folder(&disk.nodes, to), false);

        set_name(c, to, a);
        set_name(c, from, flags ? b : NO_INODE);
    }
    return e;
}

static int disk_remove(int folder, const char *path, int flags)
{
    const int in = folder == AT_FDCWD ? inodes_folder(&disk.nodes, path)
                                      : inodes_open(&disk.nodes, folder);
    struct stat st;
    int node = NO_INODE, e;

    if (is_off())
        return refuse(EIO);
    if (fstatat(folder, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        node = inodes_find(&disk.nodes, &st);
    e = fl_disk_system.remove(folder, path, flags);
    if (e == 0 && in != NO_INODE) {
        set_name(add_change(in, false), path, NO_INODE);
        inodes_forget(&disk.nodes, node);
    }
    return e;
}

/* Of scratch files, which a crash leaves nothing of. */
static ssize_t disk_write_at(int fd, const void *data, size_t size, off_t at)
{
    if (is_off())
        return refuse(EIO);
    if (disk.full && size > disk.room)
        return refuse(ENOSPC);
    disk.room -= disk.full ? size : 0;
    return fl_disk_system.write_at(fd, data, size, at);
}

static ssize_t disk_read_at(int fd, void *data, size_t size, off_t at, bool now)
{
    return is_off() ? refuse(EIO)
                    : fl_disk_system.read_at(fd, data, size, at, now);
}

static const fl_disk calls = {
    disk_open,   disk_write, disk_flush, disk_make_folder, disk_rename,
    disk_remove, readdir,    read,       disk_write_at,    disk_read_at,
};

/* --- a crash -------------------------------------------------------------- */

/* Of a change that is not safe: is it on the disk, and how much of it? */
static void choose(uint64_t seed, int i)
{
    uint64_t how = sim_hash(seed, 1, 0, 0, 0) % 4;
    uint64_t luck = sim_hash(seed, 2, (uint64_t)i, 0, 0);
    change *c = &disk.change[i];
    bool kept = how == 0 ? false : how == 1 ? true : luck & 1;

    if (c->safe)
        return;
    if (kept && c->data && luck >> 8 & 1)
        c->size = (size_t)((luck >> 16) % (c->size + 1)); /* torn */
    c->safe = kept;
}

static int find_name(const name *list, int n, const char *wanted)
{
    int at = 0;

    while (at < n && strcmp(list[at].name, wanted) != 0)
        at++;
    return at;
}

/* What the folder's names stand for, by the changes that are safe. */
static int names_of(int folder, name *list, int capacity)
{
    int n = 0;

    for (int i = 0; i < disk.n_change; i++) {
        const change *c = &disk.change[i];

        for (int m = 0; c->safe && c->node == folder && m < c->n_name; m++) {
            int at = find_name(list, n, c->name[m].name);

            CHECK(at < capacity);
            list[at] = c->name[m];
            n += at == n;
        }
    }
    return n;
}

static void write_node(int node, const char *path);

static void write_folder(int node, const char *path)
{
    enum { CAPACITY = 256 };
    name *list = calloc(CAPACITY, sizeof *list);
    int n;

    CHECK(list != NULL && mkdir(path, 0755) == 0);
    n = names_of(node, list, CAPACITY);
    for (int i = 0; i < n; i++) {
        char below[PATH_MAX];

        snprintf(below, sizeof below, "%s/%s", path, list[i].name);
        if (list[i].node != NO_INODE)
            write_node(list[i].node, below);
    }
    free(list);
}

/* Bytes before those that have come are 0. */
static void write_node(int node, const char *path)
{
    int fd;

    if (disk.nodes.node[node].folder) {
        write_folder(node, path);
        return;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    for (int i = 0; i < disk.n_change; i++) {
        const change *c = &disk.change[i];

        if (c->safe && c->node == node && c->data)
            CHECK(pwrite(fd, c->data, c->size, c->at) == (ssize_t)c->size);
    }
    close(fd);
}

static void read_file(int node, const char *path)
{
    size_t size;
    char *data;

    CHECK_OK(fl_file_read(path, &data, &size));
    add_write(node, true, data, size, 0);
    fl_free(data);
}

/* What lies there now is safe. */
static void read_folder(int node, const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    CHECK(dir != NULL);
    while ((e = readdir(dir)) != NULL) {
        char below[PATH_MAX];
        int child;

        if (*e->d_name == '.')
            continue;
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        child = inodes_add(&disk.nodes, below);
        set_name(add_change(node, true), below, child);
        if (disk.nodes.node[child].folder)
            read_folder(child, below);
        else
            read_file(child, below);
    }
    closedir(dir);
}

static void forget_all(void)
{
    for (int i = 0; i < disk.n_change; i++)
        free(disk.change[i].data);
    free(disk.change);
    inodes_done(&disk.nodes);
    disk.change = NULL;
    disk.n_change = 0;
    disk.off = false;
    disk.calls = 0;
    sim_disk_mend();
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    while (dir && (e = readdir(dir)) != NULL) {
        char below[PATH_MAX];

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (unlink(below) != 0)
            remove_tree(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

void sim_disk_crash(uint64_t seed)
{
    for (int i = 0; i < disk.n_change; i++)
        choose(seed, i);
    remove_tree(disk.root);
    write_folder(ROOT, disk.root);
    forget_all();
    read_folder(inodes_add(&disk.nodes, disk.root), disk.root);
}

/* --- the rest ------------------------------------------------------------- */

void sim_disk_open(const char *folder)
{
    snprintf(disk.root, sizeof disk.root, "%s", folder);
    remove_tree(folder);
    CHECK(mkdir(folder, 0755) == 0);
    inodes_add(&disk.nodes, folder);
    fl_disk_use(&calls);
}

void sim_disk_close(void)
{
    fl_disk_use(NULL);
    forget_all();
    remove_tree(disk.root);
}

void sim_disk_fill(uint64_t bytes)
{
    disk.full = true;
    disk.room = bytes;
}

void sim_disk_fail_flush(int n)
{
    disk.fail_flush = n;
}

void sim_disk_mend(void)
{
    disk.full = false;
    disk.fail_flush = 0;
}

void sim_disk_stop(void)
{
    disk.off = true;
}

void sim_disk_stop_after(int n)
{
    disk.calls = n;
}

bool sim_disk_is_off(void)
{
    return disk.off;
}

void sim_disk_wipe(void)
{
    forget_all();
    remove_tree(disk.root);
    CHECK(mkdir(disk.root, 0755) == 0);
    inodes_add(&disk.nodes, disk.root);
}

/* A file of the folder, whatever order it lists them in. */
static bool choose_file(uint64_t seed, const char *folder, char path[PATH_MAX])
{
    DIR *dir = opendir(folder);
    uint64_t least = UINT64_MAX;
    struct dirent *e;

    while (dir && (e = readdir(dir)) != NULL) {
        uint64_t luck = fl_hash(e->d_name, strlen(e->d_name), seed);

        if (*e->d_name == '.' || luck >= least)
            continue;
        least = luck;
        snprintf(path, PATH_MAX, "%s/%s", folder, e->d_name);
    }
    if (dir)
        closedir(dir);
    return least < UINT64_MAX;
}

bool sim_disk_flip(const char *folder, uint64_t seed)
{
    char path[PATH_MAX];
    struct stat st;

    if (!choose_file(seed, folder, path))
        return false;
    CHECK(stat(path, &st) == 0 && st.st_size > 0);
    test_flip_bit(path, sim_hash(seed, 2, 0, 0, 0) % (uint64_t)st.st_size * 8 +
                            sim_hash(seed, 3, 0, 0, 0) % 8);
    return true;
}
