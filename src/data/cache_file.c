/* cache_file.c - blocks, then their index, then a tail that says what it all is
 * of. It is written beside its place, flushed and renamed. */
#define _GNU_SOURCE
#include "data/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/memory.h"
#include "data/cache_lock.h"
#include "data/io/fd.h"

enum {
    VERSION = 1,
    PIECE = 1 << 20,
    SETTLED_S = 2 /* by then a write gives a file another time */
};

static const char magic[8] = "FLEETCSH";

typedef struct cache_tail {
    char magic[8];
    uint64_t version, key;
    uint64_t size, hash; /* of the source */
    uint64_t inode, device;
    int64_t changed_s, changed_ns, modified_s, modified_ns;
    uint64_t settled; /* 0: it was written just before, so that another write
                         may have left it these times */
    uint64_t rows, n_block, index_at, index_hash;
    uint64_t tail_hash; /* of all before it */
} cache_tail;

static uint64_t hash_tail(const cache_tail *t)
{
    return fl_hash(t, offsetof(cache_tail, tail_hash), 0);
}

static fleet_status cannot_do(const char *what, const char *path, int why)
{
    return fl_fail(FLEET_EIO, "cannot %s %s: %s", what, path, strerror(why));
}

/* --- the key -------------------------------------------------------------- */

static void add_text(fl_hasher *h, const char *text)
{
    const char *t = text ? text : "";

    fl_hasher_add(h, t, strlen(t) + 1);
}

static void add_number(fl_hasher *h, int64_t x)
{
    fl_hasher_add(h, &x, sizeof x);
}

static void add_slot(fl_hasher *h, const fleet_slot *s, uint64_t seed)
{
    add_text(h, s->name);
    add_number(h, s->dtype);
    add_number(h, fl_slot_dim(s));
    add_number(h, (int64_t)seed);
    add_number(h, s->weighted != 0);
    add_number(h, s->required != 0);
    add_number(h, s->n_column);
    for (int i = 0; i < s->n_column; i++) {
        add_text(h, s->columns[i]);
        add_number(h, fl_transform_of(s, i));
    }
    add_number(h, s->n_equals);
    for (int i = 0; i < s->n_equals; i++)
        add_text(h, s->equals[i]);
}

uint64_t fl_cache_key(const fl_stream_spec *spec)
{
    const fl_statistics *s = spec->statistics;
    const int n_slot = fl_count_read_slots(spec->slots, spec->n_slot);
    fl_hasher h;

    fl_hasher_init(&h, VERSION);
    add_text(&h, fleet_version());
    add_number(&h, spec->format);
    add_number(&h, spec->separator ? spec->separator : ',');
    add_number(&h, spec->comment);
    add_number(&h, spec->header != 0);
    add_number(&h, spec->skip_lines);
    add_text(&h, spec->missing);
    add_number(&h, spec->no_label);
    add_number(&h, n_slot);
    for (int i = 0; i < n_slot; i++)
        add_slot(&h, &spec->slots[i],
                 spec->seeds ? spec->seeds[i] : (uint64_t)i);
    for (int i = 0; s && i < s->n; i++) {
        fl_hasher_add(&h, &s->mean[i], sizeof s->mean[i]);
        fl_hasher_add(&h, &s->deviation[i], sizeof s->deviation[i]);
    }
    return fl_hasher_end(&h);
}

/* --- what it is of -------------------------------------------------------- */

static fleet_status describe_source(cache_tail *t, const char *source)
{
    struct stat st;
    struct timespec now;

    if (stat(source, &st) != 0)
        return cannot_do("look at", source, errno);
    if (!S_ISREG(st.st_mode))
        return fl_fail(FLEET_EUNSUPPORTED, "%.500s is no regular file", source);
    clock_gettime(CLOCK_REALTIME, &now);
    t->size = (uint64_t)st.st_size;
    t->inode = st.st_ino;
    t->device = st.st_dev;
    t->changed_s = st.st_ctim.tv_sec;
    t->changed_ns = st.st_ctim.tv_nsec;
    t->modified_s = st.st_mtim.tv_sec;
    t->modified_ns = st.st_mtim.tv_nsec;
    t->settled = now.tv_sec > st.st_ctim.tv_sec + SETTLED_S;
    return FLEET_OK;
}

static bool same_source(const cache_tail *a, const cache_tail *b)
{
    return a->size == b->size && a->inode == b->inode &&
           a->device == b->device && a->changed_s == b->changed_s &&
           a->changed_ns == b->changed_ns && a->modified_s == b->modified_s &&
           a->modified_ns == b->modified_ns;
}

static fleet_status hash_source(const char *source, const atomic_bool *stop,
                                uint64_t *hash)
{
    int fd = fl_fd_lift(open(source, O_RDONLY | O_CLOEXEC));
    char *piece = fl_alloc(PIECE);
    fl_hasher h;
    bool stopped = false;
    ssize_t n = 1;

    fl_hasher_init(&h, 0);
    while (fd >= 0 && piece && n > 0 && !(stopped = atomic_load(stop))) {
        n = read(fd, piece, PIECE);
        if (n > 0)
            fl_hasher_add(&h, piece, (size_t)n);
        if (n < 0 && errno == EINTR)
            n = 1;
    }
    fl_free(piece);
    if (!piece) {
        fl_fd_close(&fd);
        return FLEET_ENOMEM;
    }
    if (fd < 0 || n < 0)
        return fl_fd_close(&fd), cannot_do("read", source, errno);
    fl_fd_close(&fd);
    if (stopped)
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    *hash = fl_hasher_end(&h);
    return FLEET_OK;
}

/* --- read ----------------------------------------------------------------- */

static char *path_of(const char *source)
{
    static const char end[] = ".fleetcache";
    const size_t n = strlen(source);
    char *path = fl_alloc(n + sizeof end);

    if (path) {
        memcpy(path, source, n);
        memcpy(path + n, end, sizeof end);
    }
    return path;
}

static uint64_t identity_of(const struct stat *st)
{
    const uint64_t words[] = {st->st_dev, st->st_ino, (uint64_t)st->st_size,
                              (uint64_t)st->st_ctim.tv_sec,
                              (uint64_t)st->st_ctim.tv_nsec};

    return fl_hash(words, sizeof words, 0);
}

/* An errno; ESTALE: it is of something else. */
static int read_tail(int fd, cache_tail *t, uint64_t *size, uint64_t *identity)
{
    struct stat st;
    int failed;

    if (fstat(fd, &st) != 0)
        return errno;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < sizeof *t)
        return ESTALE;
    *size = (uint64_t)st.st_size;
    *identity = identity_of(&st);
    failed =
        fl_disk_read_at(fd, t, sizeof *t, st.st_size - (off_t)sizeof *t, false);
    if (failed)
        return failed;
    return memcmp(t->magic, magic, sizeof magic) == 0 &&
                   t->version == VERSION && t->tail_hash == hash_tail(t)
               ? 0
               : ESTALE;
}

/* Is it of the file, by its times, or else by its bytes? */
static bool is_of(const cache_tail *t, const char *source,
                  const atomic_bool *stop)
{
    cache_tail now = {.rows = 0};
    uint64_t hash;

    if (describe_source(&now, source) != FLEET_OK)
        return false;
    if (t->settled && same_source(t, &now))
        return true;
    return t->size == now.size &&
           hash_source(source, stop, &hash) == FLEET_OK && hash == t->hash;
}

static bool index_holds(const fl_cache_file *c, const cache_tail *t)
{
    uint64_t rows = 0, at = 0;

    for (size_t i = 0; i < c->n_block; i++) {
        if (c->index[i].at != at || c->index[i].size > t->index_at - at)
            return false;
        at += c->index[i].size;
        rows += c->index[i].rows;
    }
    return at == t->index_at && rows == t->rows;
}

static fleet_status read_index(fl_cache_file *c, const cache_tail *t,
                               uint64_t size)
{
    const uint64_t room = size - sizeof *t;

    if (t->index_at > room ||
        (room - t->index_at) / sizeof *c->index != t->n_block ||
        (room - t->index_at) % sizeof *c->index != 0)
        return FLEET_ENOENT;
    c->n_block = (size_t)t->n_block;
    c->rows = t->rows;
    FL_TRY(FL_NEW(&c->index, (c->n_block + 1) * sizeof *c->index));
    return fl_disk_read_at(c->fd, c->index, c->n_block * sizeof *c->index,
                           (off_t)t->index_at, false) == 0 &&
                   fl_hash(c->index, c->n_block * sizeof *c->index, 0) ==
                       t->index_hash &&
                   index_holds(c, t)
               ? FLEET_OK
               : FLEET_ENOENT;
}

static fleet_status open_fitting(fl_cache_file *c, const char *source,
                                 uint64_t key, const atomic_bool *stop)
{
    cache_tail t;
    uint64_t size = 0;

    c->path = path_of(source);
    if (!c->path)
        return FLEET_ENOMEM;
    c->fd = fl_fd_lift(open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (c->fd < 0 || read_tail(c->fd, &t, &size, &c->identity) != 0 ||
        t.key != key || !is_of(&t, source, stop))
        return FLEET_ENOENT;
    return read_index(c, &t, size);
}

fleet_status fl_cache_file_open(fl_cache_file *c, const char *source,
                                uint64_t key, const atomic_bool *stop)
{
    fleet_status status;

    *c = (fl_cache_file){.fd = -1};
    status = open_fitting(c, source, key, stop);
    if (status == FLEET_OK)
        return FLEET_OK;
    fl_cache_file_close(c);
    if (status == FLEET_ENOENT)
        fl_error_clear();
    return status;
}

fleet_status fl_cache_file_read(const fl_cache_file *c, size_t i, void *to,
                                const fl_layout *l)
{
    const fl_cache_index *x = &c->index[i];
    const fl_cache_block *b = to;
    int failed =
        fl_disk_read_at(c->fd, to, (size_t)x->size, (off_t)x->at, false);

    if (failed == 0 &&
        (c->is_whole || fl_hash(to, (size_t)x->size, 0) == x->hash) &&
        fl_cache_block_holds(b, (size_t)x->size, l) && b->rows == x->rows)
        return FLEET_OK;
    fl_disk_remove(AT_FDCWD, c->path, 0);
    return fl_fail(FLEET_ECORRUPT,
                   "%.500s: block %zu of %zu is damaged (%s): it is removed, "
                   "and the next pass reads the text",
                   c->path, i + 1, c->n_block,
                   failed ? strerror(failed) : "its checksum is another one");
}

fleet_status fl_cache_file_note(const fl_cache_file *c, fl_cache_state *s)
{
    if (c->is_whole)
        return FLEET_OK;
    FL_TRY(fl_grow(&s->whole, &s->whole_capacity, s->n_whole + 1,
                   sizeof *s->whole));
    s->whole[s->n_whole++] = c->identity;
    return FLEET_OK;
}

bool fl_cache_file_is_noted(const fl_cache_file *c, const fl_cache_state *s)
{
    for (size_t i = 0; i < s->n_whole; i++)
        if (s->whole[i] == c->identity)
            return true;
    return false;
}

void fl_cache_file_close(fl_cache_file *c)
{
    fl_fd_close(&c->fd);
    fl_free(c->path);
    fl_free(c->index);
    *c = (fl_cache_file){.fd = -1};
}

/* --- written -------------------------------------------------------------- */

struct fl_cache_writer {
    const char *source;
    char *target, *made; /* its place, and where it is written */
    fl_writer file;
    int lock; /* says that this process writes it; -1: none */
    bool open, done;
    cache_tail tail;
    fl_cache_index *index;
    size_t capacity;
};

/* Permissions that the source lacks its cache lacks, too. Where the cache
 * cannot be of its group, another group has no more than all have. */
static fleet_status keep_private(const fl_cache_writer *w)
{
    struct stat st, made;
    mode_t mode;

    if (stat(w->source, &st) != 0)
        return cannot_do("look at", w->source, errno);
    if (fstat(w->file.fd, &made) != 0)
        return cannot_do("look at", w->file.path, errno);
    mode = made.st_mode & st.st_mode & 0666;
    if (made.st_gid != st.st_gid &&
        fchown(w->file.fd, (uid_t)-1, st.st_gid) != 0)
        mode &= ~(mode_t)S_IRWXG | (mode & S_IRWXO) << 3;
    if (fchmod(w->file.fd, mode) != 0)
        return cannot_do("set the permissions of", w->file.path, errno);
    return FLEET_OK;
}

/* A hidden name, which globs pass over, and no other process's. */
static fleet_status open_beside(fl_cache_writer *w)
{
    static const char suffix[] = ".new";
    const char *slash = strrchr(w->target, '/');
    char *folder = fl_path_parent(w->target);
    char prefix[80], name[120];
    fleet_status status;

    if (!folder)
        return FLEET_ENOMEM;
    snprintf(prefix, sizeof prefix, ".%.60s.", slash ? slash + 1 : w->target);
    snprintf(name, sizeof name, "%s%016llx%s", prefix,
             (unsigned long long)fl_nonce(), suffix);
    fl_cache_remove_stale(folder, prefix, suffix);
    status = fl_writer_open(&w->file, folder, name);
    fl_free(folder);
    w->open = true; /* also where it failed */
    FL_TRY(status);
    FL_TRY(fl_cache_lock(w->file.fd, &w->lock));
    w->made = fl_strdup(w->file.path);
    return w->made ? keep_private(w) : FLEET_ENOMEM;
}

fleet_status fl_cache_writer_open(fl_cache_writer **writer, const char *source,
                                  uint64_t key, const atomic_bool *stop)
{
    fl_cache_writer *w;
    fleet_status status;

    FL_TRY(FL_NEW(&w, sizeof *w));
    w->lock = -1;
    w->source = source;
    w->tail.version = VERSION;
    w->tail.key = key;
    memcpy(w->tail.magic, magic, sizeof magic);
    w->target = path_of(source);
    status = w->target ? FLEET_OK : FLEET_ENOMEM;
    if (status == FLEET_OK)
        status = describe_source(&w->tail, source);
    if (status == FLEET_OK)
        status = hash_source(source, stop, &w->tail.hash);
    if (status == FLEET_OK)
        status = open_beside(w);
    if (status == FLEET_OK)
        *writer = w;
    else
        fl_cache_writer_close(w);
    return status;
}

fleet_status fl_cache_writer_add(fl_cache_writer *w, const void *block,
                                 size_t size, uint64_t rows)
{
    const size_t n = (size_t)w->tail.n_block;

    FL_TRY(fl_grow(&w->index, &w->capacity, n + 1, sizeof *w->index));
    w->index[n] = (fl_cache_index){.at = w->tail.index_at,
                                   .size = size,
                                   .rows = rows,
                                   .hash = fl_hash(block, size, 0)};
    w->tail.n_block++;
    w->tail.rows += rows;
    w->tail.index_at += size;
    fl_writer_put(&w->file, block, size);
    return w->file.status;
}

static fleet_status end_file(fl_cache_writer *w)
{
    const size_t size = (size_t)w->tail.n_block * sizeof *w->index;
    fleet_status status;

    w->tail.index_hash = fl_hash(w->index, size, 0);
    w->tail.tail_hash = hash_tail(&w->tail);
    if (size > 0)
        fl_writer_put(&w->file, w->index, size);
    fl_writer_put(&w->file, &w->tail, sizeof w->tail);
    w->open = false;
    status = fl_writer_close(&w->file, NULL, NULL);
    return status == FLEET_OK ? fl_file_replace(w->made, w->target) : status;
}

fleet_status fl_cache_writer_commit(fl_cache_writer *w)
{
    cache_tail now = {.rows = 0};

    FL_TRY(describe_source(&now, w->source));
    if (!same_source(&now, &w->tail))
        return fl_fail(FLEET_ESTATE, "%.500s has changed meanwhile", w->source);
    FL_TRY(end_file(w));
    w->done = true;
    return FLEET_OK;
}

void fl_cache_writer_close(fl_cache_writer *w)
{
    if (!w)
        return;
    if (w->open)
        fl_writer_close(&w->file, NULL, NULL);
    if (w->made && !w->done)
        fl_disk_remove(AT_FDCWD, w->made, 0);
    fl_fd_close(&w->lock);
    fl_free(w->made);
    fl_free(w->target);
    fl_free(w->index);
    fl_free(w);
}
