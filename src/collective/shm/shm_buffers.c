/* shm_buffers.c - buffers that all ranks map, beside the communicator's own
 * memory: for reductions without a copy, and for smaller communicators. One
 * rank makes a buffer; the other ranks reach it through that process'
 * descriptor, so that it has no name that could be left behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "collective/shm/shm_internal.h"

enum { PAGE = 4096 };

/* NULL, if it cannot be made; the descriptor is the caller's. */
static void *make_memory(size_t bytes, int *fd)
{
    void *p = MAP_FAILED;

    *fd = memfd_create("fleet", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0)
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (p == MAP_FAILED && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return p == MAP_FAILED ? NULL : p;
}

static void *map_offer(const fl_shm_rank *of, size_t bytes)
{
    char path[64];
    void *p;
    int fd;

    if (of->offer_fd < 0)
        return NULL;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", of->offer_pid, of->offer_fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* A call of all ranks. Ranks with the same maker share memory; *memory is NULL
 * for all of them if one of them cannot have it. maker -1: this rank wants
 * none. */
static fleet_status share_memory(fl_shm *shm, int maker, const int *member,
                                 int n, size_t bytes, void **memory)
{
    int me = shm->base.comm.rank, fd = -1;
    fl_shm_rank *own = &shm->rank[me];
    fleet_status status;
    bool is_whole = true;

    *memory = maker == me ? make_memory(bytes, &fd) : NULL;
    own->offer_pid = (int32_t)getpid();
    own->offer_fd = fd;
    status = fl_shm_barrier(shm, NULL);
    if (status == FLEET_OK && maker >= 0 && maker != me)
        *memory = map_offer(&shm->rank[maker], bytes);
    own->offer_taken = *memory != NULL;
    if (status == FLEET_OK)
        status = fl_shm_barrier(shm, NULL);
    for (int i = 0; i < n; i++)
        is_whole = is_whole && shm->rank[member[i]].offer_taken;
    if (fd >= 0)
        close(fd);
    if (*memory && (!is_whole || status != FLEET_OK)) {
        munmap(*memory, bytes);
        *memory = NULL;
    }
    return status;
}

/* --- memory for reductions ----------------------------------------------- */

static fleet_status add_region(fl_shm *shm, const fl_work *work, void *base,
                               int64_t stride)
{
    fl_shm_region *r;

    if (FL_NEW(&r, sizeof *r) != FLEET_OK) {
        munmap(base, (size_t)(stride * shm->base.comm.size));
        return FLEET_ENOMEM;
    }
    *r = (fl_shm_region){.next = shm->region,
                         .serial = shm->n_region,
                         .base = base,
                         .stride = stride,
                         .bytes = work->call.n};
    pthread_mutex_lock(&shm->base.lock);
    shm->region = r;
    pthread_mutex_unlock(&shm->base.lock);
    *(void **)work->out = r->base + stride * shm->base.comm.rank;
    return FLEET_OK;
}

fleet_status fl_shm_memory(fl_shm *shm, const fl_work *work)
{
    int size = shm->base.comm.size, *all;
    int64_t stride = (work->call.n + PAGE) / PAGE * PAGE;
    fleet_status status;
    void *base;

    FL_TRY(fl_shm_barrier(shm, &work->call));
    FL_TRY(FL_NEW(&all, (size_t)size * sizeof *all));
    for (int r = 0; r < size; r++)
        all[r] = r;
    status = share_memory(shm, 0, all, size, (size_t)(stride * size), &base);
    fl_free(all);
    FL_TRY(status);
    shm->n_region++;
    if (base)
        return add_region(shm, work, base, stride);
    return FL_NEW((void **)work->out, (size_t)work->call.n);
}

/* The communicator's thread reads the list, too. */
fl_shm_region *fl_shm_region_at(fl_shm *shm, const void *p, int64_t bytes)
{
    const char *begin = p;
    fl_shm_region *r;

    pthread_mutex_lock(&shm->base.lock);
    for (r = shm->region; r; r = r->next) {
        const char *own = r->base + r->stride * shm->base.comm.rank;

        if (begin >= own && begin + bytes <= own + r->bytes)
            break;
    }
    pthread_mutex_unlock(&shm->base.lock);
    return r;
}

fl_shm_region *fl_shm_region_of(fl_shm *shm, int64_t serial)
{
    fl_shm_region *r;

    pthread_mutex_lock(&shm->base.lock);
    r = shm->region;
    while (r && r->serial != serial)
        r = r->next;
    pthread_mutex_unlock(&shm->base.lock);
    return r;
}

void fl_shm_free(fl_comm_base *g, void *memory)
{
    fl_shm *shm = fl_shm_of(g);
    fl_shm_region **at = &shm->region, *r = fl_shm_region_at(shm, memory, 0);

    if (!r) {
        fl_free(memory);
        return;
    }
    pthread_mutex_lock(&shm->base.lock);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    pthread_mutex_unlock(&shm->base.lock);
    munmap(r->base, (size_t)(r->stride * shm->base.comm.size));
    fl_free(r);
}

/* --- smaller communicators ------------------------------------------------ */

/* Does a come before b in the new communicator? */
static bool comes_before(const fl_shm *shm, int a, int b)
{
    int64_t key_a = fl_shm_call(shm, a)->extra[1];
    int64_t key_b = fl_shm_call(shm, b)->extra[1];

    return key_a < key_b || (key_a == key_b && a < b);
}

/* The ranks of this one's color, in their new order. */
static int list_members(const fl_shm *shm, int *member)
{
    int64_t color = fl_shm_call(shm, shm->base.comm.rank)->extra[0];
    int n = 0;

    for (int r = 0; r < shm->base.comm.size; r++) {
        int at = n;

        if (fl_shm_call(shm, r)->extra[0] != color)
            continue;
        for (; at > 0 && comes_before(shm, r, member[at - 1]); at--)
            member[at] = member[at - 1];
        member[at] = r;
        n++;
    }
    return n;
}

static void unmap_memory(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

static fleet_status open_child(fl_shm *shm, const int *member, int n,
                               void *memory, fl_comm **child)
{
    fl_comm_options o = fl_comm_base_options(&shm->base);
    int rank = 0;
    fleet_status status;

    if (!memory)
        return fl_fail(FLEET_EIO,
                       "split: no memory for a window of %d ranks: %s", n,
                       strerror(errno));
    while (member[rank] != shm->base.comm.rank)
        rank++;
    status = fl_shm_open(memory, rank, n, shm->base.comm.methods->name, &o,
                         unmap_memory, child);
    if (status != FLEET_OK)
        unmap_memory(memory, fl_shm_bytes(n));
    return status;
}

/* Memory that is new is zero, as fl_shm_prepare() would make it. */
fleet_status fl_shm_split(fl_shm *shm, const fl_work *work)
{
    bool is_in = work->call.extra[0] >= 0;
    void *memory = NULL;
    fleet_status status;
    int *member, n;

    FL_TRY(fl_shm_barrier(shm, &work->call));
    FL_TRY(FL_NEW(&member, (size_t)shm->base.comm.size * sizeof *member));
    n = list_members(shm, member);
    status = share_memory(shm, is_in ? member[0] : -1, member, is_in ? n : 0,
                          fl_shm_bytes(n), &memory);
    if (status == FLEET_OK && is_in)
        status = open_child(shm, member, n, memory, work->out);
    fl_free(member);
    return status;
}
