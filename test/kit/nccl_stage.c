/* nccl_stage.c - a group over a device's memory as one over the host's: see
 * nccl_kit.h. */
#define SUITE nccl_stage
#include "device_kit.h"
#include "nccl_kit.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000 * TEST_SLOWNESS, MOST_SHADOW = 8 };

/* Memory of the host, and where its like is on the device. */
typedef struct shadow {
    char *host, *device;
    int64_t bytes;
} shadow;

typedef struct stage {
    fl_comm peers;
    fl_comm_class class;
    fl_comm *inner;
    fl_device *d;
    fl_queue *q;
    bool is_child;
    shadow got[MOST_SHADOW]; /* by get_memory() */
    fl_work *made;
} stage;

struct fl_work {
    fl_work *inner, *previous;
    shadow in, out; /* made for the call */
    char *to;       /* what comes back to the host, and from where */
    const char *from;
    int64_t bytes;
};

static stage *stage_of(fl_comm *p)
{
    return (stage *)p;
}

static void copy(stage *s, void *to, const void *from, int64_t n, fl_copy kind)
{
    CHECK_OK(s->d->methods->copy(s->d, s->q, to, from, (size_t)n, kind));
    if (kind == FL_TO_HOST)
        CHECK_OK(s->d->methods->stream_wait(s->d, s->q, WAIT_MS));
}

/* --- operands ------------------------------------------------------------ */

static char *find(const stage *s, const char *host)
{
    for (int i = 0; i < MOST_SHADOW; i++) {
        const shadow *g = &s->got[i];

        if (g->host && host >= g->host && host < g->host + g->bytes)
            return g->device + (host - g->host);
    }
    return NULL;
}

static shadow make(stage *s, const char *host, int64_t bytes)
{
    shadow made = {(char *)host, NULL, bytes};
    void *p;

    CHECK_OK(s->d->methods->alloc(s->d, s->q, (size_t)bytes, &p));
    made.device = p;
    copy(s, p, host, bytes, FL_TO_DEVICE);
    return made;
}

static void drop(stage *s, shadow *m)
{
    s->d->methods->free(s->d, s->q, m->device);
    *m = (shadow){0};
}

/* The device's place for what the host has there; a copy, if it has none. */
static char *place(stage *s, const void *at, int64_t bytes, shadow *made)
{
    char *found = find(s, at);

    if (found)
        copy(s, found, at, bytes, FL_TO_DEVICE);
    else
        *made = make(s, at, bytes);
    return found ? found : made->device;
}

typedef struct operands {
    char *in, *out;
} operands;

/* Both lie in one piece if they overlap. */
static operands bring(stage *s, fl_work *w, const void *in, int64_t n_in,
                      void *out, int64_t n_out)
{
    const char *a = in, *b = out;
    const char *begin = a < b ? a : b;
    const char *end = a + n_in > b + n_out ? a + n_in : b + n_out;
    operands o;

    *w = (fl_work){.to = out, .bytes = n_out};
    if (in && out && !find(s, in) && end - begin < n_in + n_out) {
        o.in = place(s, begin, end - begin, &w->in) + (a - begin);
        o.out = o.in + (b - a);
    } else {
        o.in = in ? place(s, in, n_in, &w->in) : NULL;
        o.out = in == out ? o.in : out ? place(s, out, n_out, &w->out) : NULL;
    }
    w->from = o.out;
    /* what fails here fails in the call that follows, too */
    s->inner->methods->after(s->inner, s->q);
    return o;
}

static void take_back(stage *s, fl_work *w, fleet_status status)
{
    if (status == FLEET_OK && w->to && w->bytes > 0)
        copy(s, w->to, w->from, w->bytes, FL_TO_HOST);
    drop(s, &w->in);
    drop(s, &w->out);
}

/* --- calls --------------------------------------------------------------- */

/* What a call has come to, now or with its work later. */
static fleet_status end(stage *s, fl_work *w, fleet_status status,
                        fl_work **work)
{
    if (work)
        *work = NULL;
    if (!work || status != FLEET_OK) {
        take_back(s, w, status);
        return status;
    }
    *work = calloc(1, sizeof *w);
    CHECK(*work != NULL);
    **work = *w;
    (*work)->previous = s->made;
    s->made = *work;
    return status;
}

static int64_t size_of(fl_wire_type type)
{
    static const int64_t size[FL_N_WIRE] = {4, 8, 4, 8, 1, 2, 2};

    return type < FL_N_WIRE ? size[type] : 0;
}

static int64_t of_all(const int64_t *bytes, int n)
{
    int64_t all = 0;

    for (int i = 0; i < n; i++)
        all += bytes[i] > 0 ? bytes[i] : 0;
    return all;
}

static int64_t positive(int64_t n)
{
    return n > 0 ? n : 0;
}

static fleet_status all_reduce(fl_comm *p, fl_reduce how, fl_wire_type type,
                               const void *in, void *out, int64_t n,
                               fl_work **work)
{
    stage *s = stage_of(p);
    int64_t bytes = positive(n) * size_of(type);
    fl_work w;
    operands o = bring(s, &w, in, bytes, out, bytes);

    return end(s, &w,
               s->inner->methods->all_reduce(s->inner, how, type, o.in, o.out,
                                             n, work ? &w.inner : NULL),
               work);
}

static fleet_status reduce_scatter(fl_comm *p, fl_reduce how, fl_wire_type type,
                                   const void *in, void *out, int64_t n,
                                   fl_work **work)
{
    stage *s = stage_of(p);
    int64_t bytes = positive(n) * size_of(type);
    fl_work w;
    operands o = bring(s, &w, in, bytes * p->size, out, bytes);

    return end(s, &w,
               s->inner->methods->reduce_scatter(
                   s->inner, how, type, o.in, o.out, n, work ? &w.inner : NULL),
               work);
}

static fleet_status all_gather(fl_comm *p, const void *in, void *out,
                               int64_t bytes, fl_work **work)
{
    stage *s = stage_of(p);
    fl_work w;
    operands o =
        bring(s, &w, in, positive(bytes), out, positive(bytes) * p->size);

    return end(s, &w,
               s->inner->methods->all_gather(s->inner, o.in, o.out, bytes,
                                             work ? &w.inner : NULL),
               work);
}

static fleet_status all_to_all_v(fl_comm *p, const void *in, const int64_t *to,
                                 void *out, const int64_t *from, fl_work **work)
{
    stage *s = stage_of(p);
    fl_work w;
    operands o =
        bring(s, &w, in, of_all(to, p->size), out, of_all(from, p->size));

    return end(s, &w,
               s->inner->methods->all_to_all_v(s->inner, o.in, to, o.out, from,
                                               work ? &w.inner : NULL),
               work);
}

static fleet_status broadcast(fl_comm *p, void *data, int64_t bytes, int root,
                              fl_work **work)
{
    stage *s = stage_of(p);
    fl_work w;
    operands o = bring(s, &w, data, positive(bytes), data, positive(bytes));

    return end(s, &w,
               s->inner->methods->broadcast(s->inner, o.out, bytes, root,
                                            work ? &w.inner : NULL),
               work);
}

static fleet_status send(fl_comm *p, const void *data, int64_t bytes, int to,
                         fl_work **work)
{
    stage *s = stage_of(p);
    fl_work w;
    operands o = bring(s, &w, data, positive(bytes), NULL, 0);

    return end(s, &w,
               s->inner->methods->send(s->inner, o.in, bytes, to,
                                       work ? &w.inner : NULL),
               work);
}

static fleet_status recv(fl_comm *p, void *data, int64_t bytes, int from,
                         fl_work **work)
{
    stage *s = stage_of(p);
    fl_work w;
    operands o = bring(s, &w, NULL, 0, data, positive(bytes));

    return end(s, &w,
               s->inner->methods->recv(s->inner, o.out, bytes, from,
                                       work ? &w.inner : NULL),
               work);
}

static fleet_status barrier(fl_comm *p)
{
    return stage_of(p)->inner->methods->barrier(stage_of(p)->inner);
}

static void forget(stage *s, fl_work *w)
{
    fl_work **at = &s->made;

    while (*at != w)
        at = &(*at)->previous;
    *at = w->previous;
    free(w);
}

static fleet_status wait(fl_comm *p, fl_work **work)
{
    stage *s = stage_of(p);
    fl_work *w = *work;
    fleet_status status;

    *work = NULL;
    if (!w)
        return FLEET_OK;
    status = s->inner->methods->wait(s->inner, &w->inner);
    CHECK(w->inner == NULL);
    take_back(s, w, status);
    forget(s, w);
    return status;
}

/* --- memory, smaller groups, ends ---------------------------------------- */

static fleet_status get_memory(fl_comm *p, int64_t bytes, void **memory)
{
    stage *s = stage_of(p);
    shadow *g = s->got;
    fleet_status status;
    void *device;

    *memory = NULL;
    status = s->inner->methods->get_memory(s->inner, bytes, &device);
    if (status != FLEET_OK)
        return status;
    while (g->host)
        g++;
    CHECK(g < s->got + MOST_SHADOW);
    *g = (shadow){aligned_alloc(64, (size_t)(bytes / 64 + 1) * 64), device,
                  bytes};
    CHECK(g->host != NULL);
    if (bytes > 0)
        copy(s, g->host, device, bytes, FL_TO_HOST);
    *memory = g->host;
    return status;
}

static void free_memory(fl_comm *p, void *memory)
{
    stage *s = stage_of(p);

    for (int i = 0; memory && i < MOST_SHADOW; i++)
        if (s->got[i].host == memory) {
            s->inner->methods->free_memory(s->inner, s->got[i].device);
            s->got[i] = (shadow){0};
            free(memory);
        }
    if (!memory)
        s->inner->methods->free_memory(s->inner, NULL);
}

static void give_up(fl_comm *p, const char *why)
{
    stage_of(p)->inner->methods->abort(stage_of(p)->inner, why);
}

static void destroy(fl_comm *p)
{
    stage *s = stage_of(p);
    fl_work *previous;

    s->inner->methods->destroy(s->inner);
    for (fl_work *w = s->made; w; w = previous) {
        previous = w->previous;
        drop(s, &w->in);
        drop(s, &w->out);
        free(w);
    }
    if (!s->is_child) {
        s->d->methods->stream_destroy(s->d, s->q);
        s->d->methods->destroy(s->d);
    }
    free(s);
}

static fleet_status split(fl_comm *p, int color, int key, fl_comm **child);

static const fl_comm_class methods = {
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all_v = all_to_all_v,
    .broadcast = broadcast,
    .send = send,
    .recv = recv,
    .barrier = barrier,
    .wait = wait,
    .split = split,
    .get_memory = get_memory,
    .free_memory = free_memory,
    .abort = give_up,
    .destroy = destroy,
};

static stage *wrap(fl_comm *inner)
{
    stage *s = calloc(1, sizeof *s);

    CHECK(s != NULL);
    s->class = methods;
    s->class.name = inner->methods->name;
    s->inner = inner;
    s->peers = *inner;
    s->peers.methods = &s->class;
    return s;
}

static fleet_status split(fl_comm *p, int color, int key, fl_comm **child)
{
    stage *s = stage_of(p), *made;
    fl_comm *inner;
    fleet_status status =
        s->inner->methods->split(s->inner, color, key, &inner);

    *child = NULL;
    if (status != FLEET_OK || !inner)
        return status;
    made = wrap(inner);
    made->d = s->d;
    made->q = s->q;
    made->is_child = true;
    *child = &made->peers;
    return status;
}

/* To ask for it sets its host, which is one thread's. */
static const fl_device_table *devices;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_devices(void)
{
    devices = device_kit_table();
}

fleet_status nccl_kit_stage(fl_comm *inner, int device, fl_comm **p)
{
    stage *s = wrap(inner);

    pthread_once(&once, find_devices);
    CHECK_OK(devices->open(device, NULL, &s->d));
    CHECK_OK(s->d->methods->stream_create(s->d, &s->q));
    *p = &s->peers;
    return FLEET_OK;
}
