/* cold_kit.c - see cold_kit.h. */
#define _GNU_SOURCE
#define SUITE cold_kit
#include "cold_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "train_kit.h"

fl_rows_cap cold_kit_cap = {.bytes = 1 << 20};

/* What is left of the faults: files' threads count it down. */
static cold_kit_faults faults;
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;

static cold_kit_faults look(void)
{
    cold_kit_faults f;

    pthread_mutex_lock(&faults_lock);
    f = faults;
    pthread_mutex_unlock(&faults_lock);
    return f;
}

int cold_kit_reads_left(void)
{
    return look().flip;
}

fleet_status cold_kit_make(const char *name, int64_t dim, int64_t modulo,
                           const fl_filler *filler, fl_rows **rows)
{
    if (!cold_kit_cap.folder)
        cold_kit_cap.folder = test_folder();
    return fl_cold_make(name, dim, modulo, filler, &cold_kit_cap, rows);
}

static int open_file(int folder, const char *name, int flags, mode_t mode)
{
    if (look().no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return fl_disk_system.open(folder, name, flags, mode);
}

static bool has_room(int64_t size)
{
    bool fits;

    pthread_mutex_lock(&faults_lock);
    fits = !faults.full || size <= faults.room;
    if (fits)
        faults.room -= size;
    pthread_mutex_unlock(&faults_lock);
    return fits;
}

static ssize_t write_at(int fd, const void *data, size_t size, off_t at)
{
    if (!has_room((int64_t)size)) {
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, data, size, at);
}

static bool is_flipped(void)
{
    bool flips;

    pthread_mutex_lock(&faults_lock);
    flips = faults.flip > 0 && --faults.flip == 0;
    if (flips)
        faults.flip = faults.stays;
    pthread_mutex_unlock(&faults_lock);
    return flips;
}

static ssize_t read_at(int fd, void *data, size_t size, off_t at, bool now)
{
    ssize_t n;

    if (now && look().nothing_now) {
        errno = EAGAIN;
        return -1;
    }
    n = fl_disk_system.read_at(fd, data, size, at, now);
    if (n > 0 && is_flipped())
        ((char *)data)[n / 2] ^= 4;
    return n;
}

static fl_disk failing_disk;

static void make_disk(void)
{
    failing_disk = fl_disk_system;
    failing_disk.open = open_file;
    failing_disk.write_at = write_at;
    failing_disk.read_at = read_at;
}

void cold_kit_disk(const cold_kit_faults *f)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_disk);
    pthread_mutex_lock(&faults_lock);
    faults = *f;
    pthread_mutex_unlock(&faults_lock);
    fl_disk_use(&failing_disk);
}

/* --- a model -------------------------------------------------------------- */

fleet_var *cold_kit_build(fleet *f, fleet_program **p, const cold_how *how)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    const fleet_sparse_embedding_options o = {.table = "t",
                                              .memory_cap_bytes = how->cap,
                                              .cold_folder = how->folder,
                                              .life.accessor = how->accessor};
    fleet_var *ids, *out;
    fleet_optimizer *adam = kit_rule(f, "adam", 0.01f);

    *p = fleet_program_create(f);
    ids = fleet_data(*p, "id", FLEET_INT64, (int64_t[]){-1, COLD_IDS}, 2);
    out = fleet_sparse_embedding(*p, ids, COLD_DIM, &o);
    out = fleet_fc(*p, out, 3, NULL);
    s.a_sync = how->a_sync;
    s.a_sync_configs.k_steps = how->geo;
    s.log = (int)how->log;
    if (how->log != FLEET_DURABLE_NONE)
        s.log_configs = how->log_configs;
    if (how->replicas > 0)
        s.replicas = how->replicas;
    s.gradient_merge = how->merge > 1;
    s.gradient_merge_configs.k_steps = how->merge > 1 ? how->merge : 1;
    if (how->clip > 0)
        CHECK_OK(fleet_optimizer_set_global_norm_clip(adam, how->clip));
    CHECK_OK(fleet_minimize(fleet_distributed_optimizer(f, adam, &s),
                            fleet_mean(*p, fleet_square(*p, out))));
    return ids;
}

void cold_kit_open_node(ps_node *n, const fleet_options *o)
{
    fleet_dataset_options data = {.batch_size = PS_BATCH, .n_use_var = 1};
    fleet_var *ids;
    scene *c = &n->s;

    CHECK_OK(fleet_init(&c->f, o));
    ids = cold_kit_build(c->f, &c->p, n->job->user);
    data.use_var = &ids;
    if (!n->job->file[0])
        return;
    c->data = fleet_queue_dataset(c->f, &data);
    CHECK(c->data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(c->data, n->job->file, 1));
}

const char *cold_kit_ids(const char *name, int lines, bool skewed)
{
    char *text = malloc((size_t)lines * (2 + COLD_IDS * 6) + 1), *at = text;
    const char *path;

    for (int i = 0; i < lines; i++) {
        at += sprintf(at, "%d", COLD_IDS);
        for (int j = 0; j < COLD_IDS; j++) {
            uint64_t luck = fl_mix((uint64_t)(i * COLD_IDS + j + 1));
            double u = (double)(luck >> 11) * 0x1p-53;

            at += sprintf(at, " %d",
                          (int)(skewed ? pow(COLD_KEYS, u) : u * COLD_KEYS));
        }
        at += sprintf(at, "\n");
    }
    path = test_file(name, text);
    free(text);
    return path;
}
