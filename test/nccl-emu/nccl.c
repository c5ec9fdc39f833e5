/* nccl.c - the part of NCCL that the library uses, for ranks that are processes
 * or threads of one machine without a GPU: its own names and numbers, and what
 * matters of its behaviour:
 *
 *  - calls return before they are done, and are done in their order;
 *  - sizes that differ, or a rank that does not come, hang, until an abort;
 *  - sums are made in another order than that of the ranks, and the largest of
 * a number and NaN is the number;
 *  - memory has to be a device's.
 *
 * Ranks share a file without a name, where each has a ring of bytes to each. A
 * communicator has a thread that does what was asked for.
 */
#define _GNU_SOURCE
#include "join.h"
#include "nccl.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* NCCL's own header would declare them. */
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#define API __attribute__((visibility("default")))

enum { MOST = 8, RING = 1 << 17, CHUNK = 1 << 14 };
enum {
    SUCCESS,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7
};
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

typedef struct ring {
    _Atomic uint64_t put, taken;
    char data[RING];
} ring;

typedef struct shared {
    _Atomic int joined;
    ring ring[MOST * MOST]; /* by from * MOST + to */
} shared;

typedef enum kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    GROUP
} kind;

/* A piece of memory on its way to a rank, or from it. */
typedef struct item {
    bool out;
    int peer;
    char *p;
    size_t n, moved;
} item;

typedef struct op {
    struct op *next;
    kind kind;
    const char *in;
    char *to;
    size_t n; /* elements */
    int type, how, root;
    void *stream;
    long after; /* what was queued on the stream before */
    item *item; /* of a group */
    int n_item;
} op;

typedef struct ncclComm {
    shared *s;
    int rank, size, fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    op *first, *last;
    bool busy; /* with what was taken last */
    _Atomic int state;
    _Atomic bool aborted, ends;
} comm;

static fl_nccl_emu_device device;
static _Atomic int fault, live, begun;
static _Thread_local int depth; /* of groups */
static _Thread_local op *group;
static _Thread_local comm *group_comm;

#ifndef NCCL_EMU_STRANGER /* as the real one, which knows no emulated GPU */
API void fl_nccl_emu_connect(const fl_nccl_emu_device *d)
{
    device = *d;
}
#endif

static pthread_once_t found = PTHREAD_ONCE_INIT;

/* In a process that no test connects it is the plug-in that is in use. */
static void find_device(void)
{
    const char *folder = getenv("FLEET_PLUGIN_PATH");
    char path[4096];
    void *plugin;

    if (device.begin)
        return;
    snprintf(path, sizeof path, "%s/libfleet_cuda.so", folder ? folder : ".");
    plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!plugin)
        return;
    *(void **)&device.begin = dlsym(plugin, "fl_emu_stream_begin");
    *(void **)&device.reach = dlsym(plugin, "fl_emu_stream_reach");
    *(void **)&device.end = dlsym(plugin, "fl_emu_stream_end");
    *(void **)&device.has = dlsym(plugin, "fl_emu_has");
}

API void fl_nccl_emu_set_fault(fl_nccl_emu_fault f)
{
    fault = f;
}

API int fl_nccl_emu_live(void)
{
    return live;
}

API int fl_nccl_emu_begun(void)
{
    return begun;
}

/* --- bytes --------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t copy_some(comm *c, item *i)
{
    ring *r = &c->s->ring[i->out ? c->rank * MOST + i->peer
                                 : i->peer * MOST + c->rank];
    uint64_t put = r->put, taken = r->taken;
    size_t at = (i->out ? put : taken) % RING;
    size_t n = i->out ? RING - (size_t)(put - taken) : (size_t)(put - taken);

    n = least(least(n, RING - at), i->n - i->moved);
    if (i->out)
        memcpy(r->data + at, i->p + i->moved, n);
    else
        memcpy(i->p + i->moved, r->data + at, n);
    if (i->out)
        r->put = put + n;
    else
        r->taken = taken + n;
    i->moved += n;
    return n;
}

/* All of them at once, whatever their order. */
static void exchange(comm *c, item *i, int n)
{
    bool done = false;

    while (!done && !c->aborted) {
        size_t moved = 0;

        done = true;
        for (int k = 0; k < n; k++)
            if (i[k].moved < i[k].n) {
                moved += copy_some(c, &i[k]);
                done &= i[k].moved == i[k].n;
            }
        if (!done && moved == 0)
            usleep(20);
    }
}

/* --- sums ---------------------------------------------------------------- */

/* out = the ranks' n elements, begun with the one after `first`. */
static void reduce(char *const *in, char *out, size_t n, const op *o, int size,
                   int first)
{
    size_t each = size_of(o->type);

    for (size_t i = 0; i < n * each; i += each) {
        char sum[8];

        memcpy(sum, in[(first + 1) % size] + i, each);
        for (int r = 2; r <= size; r++)
            join(sum, in[(first + r) % size] + i, o->type, o->how);
        memcpy(out + i, sum, each);
    }
}

/* --- calls --------------------------------------------------------------- */

/* Elements [begin, begin + n) of each rank; o->in is `part` elements long for
 * each, or one for all. */
static void reduce_piece(comm *c, op *o, size_t begin, size_t n, size_t part)
{
    size_t each = size_of(o->type);
    char *room = malloc((size_t)c->size * n * each);
    char *in[MOST];
    item i[2 * MOST];
    int k = 0;

    for (int r = 0; r < c->size; r++) {
        const char *own = o->in + ((size_t)r * part + begin) * each;

        in[r] = r == c->rank ? (char *)own : room + (size_t)r * n * each;
        if (r == c->rank)
            continue;
        i[k++] = (item){true, r, (char *)own, n * each, 0};
        i[k++] = (item){false, r, in[r], n * each, 0};
    }
    exchange(c, i, k);
    if (!c->aborted)
        reduce(in, o->to + begin * each, n, o, c->size,
               (int)(begin / CHUNK) % c->size);
    free(room);
}

static void gather(comm *c, op *o)
{
    size_t n = o->n * size_of(o->type);
    char *own = o->to + (size_t)c->rank * n;
    item i[2 * MOST];
    int k = 0;

    if (o->in != own)
        memmove(own, o->in, n);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) {
            i[k++] = (item){true, r, own, n, 0};
            i[k++] = (item){false, r, o->to + (size_t)r * n, n, 0};
        }
    exchange(c, i, k);
}

static void broadcast(comm *c, op *o)
{
    size_t n = o->n * size_of(o->type);
    item i[MOST];
    int k = 0;

    if (c->rank != o->root)
        i[k++] = (item){false, o->root, o->to, n, 0};
    else
        for (int r = 0; r < c->size; r++)
            if (r != c->rank)
                i[k++] = (item){true, r, (char *)o->in, n, 0};
    if (c->rank == o->root && o->in != o->to)
        memmove(o->to, o->in, n);
    exchange(c, i, k);
}

static void run(comm *c, op *o)
{
    switch (o->kind) {
    case ALL_REDUCE:
    case REDUCE_SCATTER:
        for (size_t i = 0; i < o->n && !c->aborted; i += CHUNK)
            reduce_piece(c, o, i, least(CHUNK, o->n - i),
                         o->kind == ALL_REDUCE ? 0 : o->n);
        break;
    case ALL_GATHER:
        gather(c, o);
        break;
    case BROADCAST:
        broadcast(c, o);
        break;
    case GROUP:
        exchange(c, o->item, o->n_item);
    }
}

/* --- a communicator's thread --------------------------------------------- */

static void until_aborted(comm *c)
{
    while (!c->aborted)
        usleep(200);
}

static void begin(comm *c)
{
    begun++;
    if (fault == FL_NCCL_EMU_FAILS)
        c->state = REMOTE_ERROR;
    else
        c->state = SUCCESS;
    if (fault != FL_NCCL_EMU_FINE)
        until_aborted(c);
}

static void release(op *o)
{
    device.end(o->stream);
    free(o->item);
    free(o);
}

static op *take(comm *c)
{
    op *o;

    pthread_mutex_lock(&c->lock);
    c->busy = false;
    while (!c->first && !c->aborted && !c->ends)
        pthread_cond_wait(&c->changed, &c->lock);
    o = c->first;
    c->busy = o != NULL;
    if (o)
        c->first = o->next;
    pthread_mutex_unlock(&c->lock);
    return o;
}

static void *work(void *arg)
{
    comm *c = arg;
    op *o;

    c->s->joined++;
    while ((c->s->joined < c->size || fault == FL_NCCL_EMU_SLOW_START) &&
           !c->aborted)
        usleep(50);
    if (c->fd >= 0)
        close(c->fd);
    c->state = SUCCESS;
    while ((o = take(c)) != NULL) {
        if (!c->aborted)
            begin(c);
        while (!c->aborted && !device.reach(o->stream, o->after))
            usleep(20);
        if (!c->aborted)
            run(c, o);
        release(o);
    }
    if (c->state == IN_PROGRESS)
        c->state = SUCCESS;
    return NULL;
}

/* True: behind other work. */
static bool put(comm *c, op *o)
{
    bool waits;

    o->after = device.begin(o->stream);
    pthread_mutex_lock(&c->lock);
    waits = c->busy || c->first;
    if (!waits && o->kind == GROUP)
        c->state = IN_PROGRESS;
    if (c->first)
        c->last->next = o;
    else
        c->first = o;
    c->last = o;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return waits;
}

static int enqueue(comm *c, op o)
{
    size_t each = size_of(o.type), ranks = (size_t)c->size;
    size_t in = o.n * each * (o.kind == REDUCE_SCATTER ? ranks : 1);
    size_t out = o.n * each * (o.kind == ALL_GATHER ? ranks : 1);
    op *made;

    if (!device.has(o.in, in) || !device.has(o.to, out))
        return INVALID_ARGUMENT;
    made = malloc(sizeof *made);
    if (!made)
        return SYSTEM_ERROR;
    *made = o;
    put(c, made);
    return SUCCESS;
}

/* --- what the library calls ---------------------------------------------- */

API int ncclGetVersion(int *version)
{
#ifdef NCCL_EMU_VERSION
    *version = NCCL_EMU_VERSION;
#else
    *version = 22809;
#endif
    return SUCCESS;
}

API int ncclGetUniqueId(ncclUniqueId *id)
{
    int fd = memfd_create("nccl-emu", MFD_CLOEXEC);

    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%d %d", (int)getpid(), fd);
    return fd < 0 || ftruncate(fd, sizeof(shared)) != 0 ? SYSTEM_ERROR
                                                        : SUCCESS;
}

static int map(comm *c, const ncclUniqueId *id)
{
    char path[80];
    int pid, fd;

    if (sscanf(id->internal, "%d %d", &pid, &fd) != 2)
        return INVALID_ARGUMENT;
    if (c->rank == 0)
        c->fd = fd;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return SYSTEM_ERROR;
    c->s = mmap(NULL, sizeof *c->s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return c->s == MAP_FAILED ? SYSTEM_ERROR : SUCCESS;
}

typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

API int ncclCommInitRankConfig(comm **made, int size, ncclUniqueId id, int rank,
                               config *f)
{
    comm *c = calloc(1, sizeof *c);

    *made = NULL;
    pthread_once(&found, find_device);
    if (size > MOST || !device.begin || f->magic != 0xcafebeef ||
        f->blocking != 0 || !c) {
        free(c);
        return INVALID_ARGUMENT;
    }
    c->rank = rank;
    c->size = size;
    c->fd = -1;
    c->state = IN_PROGRESS;
    if (map(c, &id) != SUCCESS) {
        free(c);
        return SYSTEM_ERROR;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    live++;
    pthread_create(&c->thread, NULL, work, c);
    *made = c;
    return IN_PROGRESS;
}

static void tell(comm *c, _Atomic bool *flag)
{
    pthread_mutex_lock(&c->lock);
    *flag = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

API int ncclCommFinalize(comm *c)
{
    c->state = IN_PROGRESS;
    tell(c, &c->ends);
    return IN_PROGRESS;
}

API int ncclCommDestroy(comm *c)
{
    pthread_join(c->thread, NULL);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    munmap(c->s, sizeof *c->s);
    free(c);
    live--;
    return SUCCESS;
}

API int ncclCommAbort(comm *c)
{
    while (fault == FL_NCCL_EMU_DEAF)
        usleep(1000);
    tell(c, &c->aborted);
    return ncclCommDestroy(c);
}

API int ncclCommGetAsyncError(comm *c, int *state)
{
    *state = c->state;
    return SUCCESS;
}

API const char *ncclGetErrorString(int result)
{
    return result == SUCCESS            ? "no error"
           : result == REMOTE_ERROR     ? "remote process exited or there was "
                                          "a network error"
           : result == INVALID_ARGUMENT ? "invalid argument"
                                        : "emulated error";
}

#ifndef NCCL_EMU_LESS /* a library without one of the functions */
API const char *ncclGetLastError(comm *c)
{
    return c->state == REMOTE_ERROR ? "as the test has asked for" : "";
}
#endif

API int ncclAllReduce(const void *in, void *out, size_t n, int type, int how,
                      comm *c, void *stream)
{
    return enqueue(c, (op){.kind = ALL_REDUCE,
                           .in = in,
                           .to = out,
                           .n = n,
                           .type = type,
                           .how = how,
                           .stream = stream});
}

API int ncclReduceScatter(const void *in, void *out, size_t n, int type,
                          int how, comm *c, void *stream)
{
    return enqueue(c, (op){.kind = REDUCE_SCATTER,
                           .in = in,
                           .to = out,
                           .n = n,
                           .type = type,
                           .how = how,
                           .stream = stream});
}

API int ncclAllGather(const void *in, void *out, size_t n, int type, comm *c,
                      void *stream)
{
    return enqueue(c, (op){.kind = ALL_GATHER,
                           .in = in,
                           .to = out,
                           .n = n,
                           .type = type,
                           .stream = stream});
}

API int ncclBroadcast(const void *in, void *out, size_t n, int type, int root,
                      comm *c, void *stream)
{
    return enqueue(c, (op){.kind = BROADCAST,
                           .in = in,
                           .to = out,
                           .n = n,
                           .type = type,
                           .root = root,
                           .stream = stream});
}

/* --- groups of messages -------------------------------------------------- */

API int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

/* Its state is settled once the group has begun, or, as a real one only puts it
 * on the stream, waits behind other work. */
API int ncclGroupEnd(void)
{
    bool waits;

    if (--depth > 0 || !group)
        return SUCCESS;
    waits = put(group_comm, group);
    group = NULL;
    return waits ? SUCCESS : IN_PROGRESS;
}

static int add(item i, comm *c, void *stream)
{
    item *more;

    if (!device.has(i.p, i.n))
        return INVALID_ARGUMENT;
    if (i.peer == c->rank)
        return INVALID_USAGE;
    ncclGroupStart();
    if (!group) {
        group = calloc(1, sizeof *group);
        group->kind = GROUP;
        group->stream = stream;
        group_comm = c;
    }
    more = realloc(group->item, (size_t)(group->n_item + 1) * sizeof *more);
    group->item = more;
    more[group->n_item++] = i;
    return ncclGroupEnd();
}

API int ncclSend(const void *in, size_t n, int type, int peer, comm *c,
                 void *stream)
{
    return add((item){true, peer, (char *)in, n * size_of(type), 0}, c, stream);
}

API int ncclRecv(void *out, size_t n, int type, int peer, comm *c, void *stream)
{
    return add((item){false, peer, out, n * size_of(type), 0}, c, stream);
}
