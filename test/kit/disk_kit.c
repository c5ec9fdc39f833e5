/* disk_kit.c - the recording of what was written, and the disks that a crash
 * may leave of it. */
#define _GNU_SOURCE
#define SUITE disk_kit
#include "disk_kit.h"
#include "inodes.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

enum {
    MOST_NODES = 64,
    MOST_NAMES = 32, /* of a folder */
    MOST_CALLS = 200,
    MOST_UNSAFE = 16, /* changes at a time: their subsets are tried */
    MOST_STATES = 4096
};

/* A file as it was when the recording began. */
typedef struct file {
    char *data;
    size_t size;
} file;

typedef struct name {
    char name[NAME_MAX + 1];
    int node;
} name;

typedef struct names {
    name list[MOST_NAMES];
    int n;
} names;

typedef enum change_kind { NAMES, WRITE, FLUSH } change_kind;

/* A name and what it then stands for; a write; or a flush. */
typedef struct change {
    change_kind kind;
    int node; /* the flush of this one makes it safe */
    name one, two;
    int n_name;
    char *data;
    size_t size;
    off_t at;
} change;

static struct {
    char root[PATH_MAX];
    inodes nodes;
    file file[MOST_NODES];
    names before[MOST_NODES];
    change change[MOST_CALLS];
    int n_change;
    bool cannot_exchange;
    int fail_flush; /* this many flushes from now; 0: none */
} disk;

/* Calls of several threads, a server's lanes, are recorded one after another:
 * the order in which they had their effect. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = -2; /* "." and ".." */

    CHECK(dir != NULL);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* --- recording ------------------------------------------------------------ */

static int add_node(const char *path)
{
    CHECK(disk.nodes.n < MOST_NODES);
    return inodes_add(&disk.nodes, path);
}

static change *add_change(change_kind kind, int node)
{
    CHECK(disk.n_change < MOST_CALLS);
    disk.change[disk.n_change] = (change){.kind = kind, .node = node};
    return &disk.change[disk.n_change++];
}

static void set_name(change *c, const char *path, int node)
{
    const char *slash = strrchr(path, '/');
    name *n = c->n_name++ == 0 ? &c->one : &c->two;

    snprintf(n->name, sizeof n->name, "%s", slash ? slash + 1 : path);
    n->node = node;
}

static int record_open(int folder, const char *path, int flags, mode_t mode)
{
    int fd = fl_disk_system.open(folder, path, flags, mode);

    if (fd >= 0 && (flags & O_CREAT) &&
        inodes_folder(&disk.nodes, path) != NO_INODE)
        set_name(add_change(NAMES, inodes_folder(&disk.nodes, path)), path,
                 add_node(path));
    return fd;
}

static ssize_t record_write(int fd, const void *data, size_t size)
{
    const int node = inodes_open(&disk.nodes, fd);
    const off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t n = fl_disk_system.write(fd, data, size);

    if (n > 0 && node != NO_INODE) {
        change *c = add_change(WRITE, node);

        c->data = malloc((size_t)n);
        memcpy(c->data, data, (size_t)n);
        c->size = (size_t)n;
        c->at = at;
    }
    return n;
}

static int record_flush(int fd)
{
    int e;

    if (disk.fail_flush > 0 && --disk.fail_flush == 0) {
        errno = EIO;
        return -1;
    }
    e = fl_disk_system.flush(fd);
    if (e == 0 && inodes_open(&disk.nodes, fd) != NO_INODE)
        add_change(FLUSH, inodes_open(&disk.nodes, fd));
    return e;
}

static int record_make_folder(const char *path, mode_t mode)
{
    int e = fl_disk_system.make_folder(path, mode);

    if (e == 0 && inodes_folder(&disk.nodes, path) != NO_INODE)
        set_name(add_change(NAMES, inodes_folder(&disk.nodes, path)), path,
                 add_node(path));
    return e;
}

static int record_rename(const char *from, const char *to, unsigned flags)
{
    const int a = inodes_at(&disk.nodes, from), b = inodes_at(&disk.nodes, to);
    int e;

    if (flags && disk.cannot_exchange) {
        errno = EINVAL;
        return -1;
    }
    e = fl_disk_system.rename(from, to, flags);
    if (e == 0 && a != NO_INODE) {
        change *c = add_change(NAMES, inodes_folder(&disk.nodes, to));

        set_name(c, to, a);
        set_name(c, from, flags ? b : NO_INODE);
    }
    return e;
}

static int record_remove(int folder, const char *path, int flags)
{
    const int in = folder == AT_FDCWD ? inodes_folder(&disk.nodes, path)
                                      : inodes_open(&disk.nodes, folder);
    int e = fl_disk_system.remove(folder, path, flags);

    if (e == 0 && in != NO_INODE)
        set_name(add_change(NAMES, in), path, NO_INODE);
    return e;
}

/* By one thread at a time. */
#define LOCKED(type, name, parameters, ...)                                    \
    static type locked_##name parameters                                       \
    {                                                                          \
        type result;                                                           \
                                                                               \
        pthread_mutex_lock(&lock);                                             \
        result = record_##name(__VA_ARGS__);                                   \
        pthread_mutex_unlock(&lock);                                           \
        return result;                                                         \
    }
LOCKED(int, open, (int folder, const char *path, int flags, mode_t mode),
       folder, path, flags, mode)
LOCKED(ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
LOCKED(int, flush, (int fd), fd)
LOCKED(int, make_folder, (const char *path, mode_t mode), path, mode)
LOCKED(int, rename, (const char *from, const char *to, unsigned flags), from,
       to, flags)
LOCKED(int, remove, (int folder, const char *path, int flags), folder, path,
       flags)

/* Scratch files are not recorded: nothing of them outlives their process. */
static ssize_t read_at(int fd, void *data, size_t size, off_t at, bool now)
{
    return fl_disk_system.read_at(fd, data, size, at, now);
}

static const fl_disk recorder = {
    locked_open,   locked_write,  locked_flush, locked_make_folder,
    locked_rename, locked_remove, readdir,      read,
    pwrite,        read_at,
};

static void read_node(int node, const char *path)
{
    struct dirent *e;
    DIR *dir = opendir(path);

    if (!dir) {
        CHECK_OK(
            fl_file_read(path, &disk.file[node].data, &disk.file[node].size));
        return;
    }
    while ((e = readdir(dir)) != NULL) {
        names *in = &disk.before[node];
        char child[PATH_MAX];

        if (*e->d_name == '.')
            continue;
        CHECK(in->n < MOST_NAMES);
        snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        in->list[in->n].node = add_node(child);
        snprintf(in->list[in->n].name, sizeof in->list->name, "%s", e->d_name);
        read_node(in->list[in->n++].node, child);
    }
    closedir(dir);
}

void disk_record(const char *folder)
{
    snprintf(disk.root, sizeof disk.root, "%s", folder);
    read_node(add_node(folder), folder);
    fl_disk_use(&recorder);
}

void disk_without_exchange(void)
{
    disk.cannot_exchange = true;
}

void disk_fail_flush(int n)
{
    disk.fail_flush = n;
}

int disk_recorded(void)
{
    fl_disk_use(NULL);
    return disk.n_change;
}

/* --- a crash -------------------------------------------------------------- */

/* What the disk has of the recorded changes, by their numbers. */
typedef bool kept[MOST_CALLS];

/* What a file or folder is called `of` in a folder, after the kept changes. */
static void names_of(names *out, int folder, const kept k)
{
    *out = disk.before[folder];
    for (int i = 0; i < disk.n_change; i++) {
        const change *c = &disk.change[i];

        if (!k[i] || c->kind != NAMES || c->node != folder)
            continue;
        for (int m = 0; m < c->n_name; m++) {
            const name *set = m == 0 ? &c->one : &c->two;
            int at = 0;

            while (at < out->n && strcmp(out->list[at].name, set->name) != 0)
                at++;
            CHECK(at < MOST_NAMES);
            if (at == out->n)
                out->n++;
            out->list[at] = *set;
        }
    }
}

/* A number that states which differ have not in common. */
static uint64_t hash_of(int node, const kept k)
{
    const change *c = disk.change;
    uint64_t sum = fl_mix((uint64_t)node + 1);
    names in;

    names_of(&in, node, k);
    for (int i = 0; i < in.n; i++)
        if (in.list[i].node != NO_INODE)
            sum += fl_mix(hash_of(in.list[i].node, k) ^
                          fl_hash(in.list[i].name, strlen(in.list[i].name), 0));
    for (int i = 0; i < disk.n_change; i++)
        if (k[i] && c[i].kind == WRITE && c[i].node == node)
            sum += fl_mix((uint64_t)i + 1000);
    return sum;
}

static void write_file(int node, const kept k, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    const size_t size = disk.file[node].size;

    CHECK(fd >= 0 && write(fd, disk.file[node].data, size) == (ssize_t)size);
    for (int i = 0; i < disk.n_change; i++) {
        const change *c = &disk.change[i];

        if (k[i] && c->kind == WRITE && c->node == node)
            CHECK(pwrite(fd, c->data, c->size, c->at) == (ssize_t)c->size);
    }
    close(fd);
}

static bool is_file(int node)
{
    for (int i = 0; i < disk.n_change; i++)
        if (disk.change[i].kind == WRITE && disk.change[i].node == node)
            return true;
    return disk.file[node].data != NULL;
}

static void write_node(int node, const kept k, const char *path)
{
    char child[PATH_MAX];
    names in;

    if (is_file(node)) {
        write_file(node, k, path);
        return;
    }
    CHECK(mkdir(path, 0755) == 0);
    names_of(&in, node, k);
    for (int i = 0; i < in.n; i++)
        if (in.list[i].node != NO_INODE) {
            snprintf(child, sizeof child, "%s/%s", path, in.list[i].name);
            write_node(in.list[i].node, k, child);
        }
}

/* A folder of files and folders. */
static const char *write_folder(int node, const kept k)
{
    static int n;
    char label[32];

    snprintf(label, sizeof label, "after-crash-%d", n++);
    CHECK(!is_file(node));
    write_node(node, k, test_path(label));
    return test_path(label);
}

static bool is_safe(int i, int calls)
{
    for (int later = i + 1; later < calls; later++)
        if (disk.change[later].kind == FLUSH &&
            disk.change[later].node == disk.change[i].node)
            return true;
    return false;
}

static int found_at(const char *wanted, const kept k)
{
    names in;

    names_of(&in, 0, k);
    for (int i = 0; i < in.n; i++)
        if (strcmp(in.list[i].name, wanted) == 0)
            return in.list[i].node;
    return NO_INODE;
}

static bool is_new_state(uint64_t hash)
{
    static uint64_t seen[MOST_STATES];
    static int n;

    for (int i = 0; i < n; i++)
        if (seen[i] == hash)
            return false;
    CHECK(n < MOST_STATES);
    seen[n++] = hash;
    return true;
}

void disk_each_crash(const char *wanted, int first, int last, disk_check *check,
                     void *arg)
{
    for (int calls = first; calls <= last; calls++) {
        int unsafe[MOST_UNSAFE], n = 0;
        kept k = {false};

        for (int i = 0; i < calls; i++) {
            k[i] = is_safe(i, calls);
            if (!k[i] && disk.change[i].kind != FLUSH) {
                CHECK(n < MOST_UNSAFE);
                unsafe[n++] = i;
            }
        }
        for (unsigned subset = 0; subset < 1u << n; subset++) {
            int node;

            for (int i = 0; i < n; i++)
                k[unsafe[i]] = subset >> i & 1;
            node = found_at(wanted, k);
            if (is_new_state((node == NO_INODE ? 0 : hash_of(node, k)) +
                             (uint64_t)(first == last)))
                check(arg, node == NO_INODE ? NULL : write_folder(node, k));
        }
    }
}
