/* table_gpu.c - a table's rows are sent to a GPU and fetched, and get room. */
#include "runtime/store/table_gpu.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "runtime/graph/op.h"
#include "runtime/store/store.h"

/* Bytes that cross at a time; kernels read 16 bytes of a row at once. */
enum { PIECE = 4 << 20, ROW_ALIGN = 16 };

/* Updates that get room, when it has to grow: this one, the updates
 * under way, and some until the next time. */
enum { ROOM_FOR = 4 };

static fl_table_gpu *table_of(fl_mirror *m)
{
    return (fl_table_gpu *)(void *)m;
}

static fl_rows *rows_of(const fl_table_gpu *x)
{
    return x->mirror.host;
}

static fleet_status copy_bytes(const fl_table_gpu *x, void *to,
                               const void *from, size_t bytes, fl_copy kind)
{
    fl_gpu *g = x->mirror.gpu;

    return bytes ? g->m->copy(g->d, g->queue, to, from, bytes, kind) : FLEET_OK;
}

/* --- memory -------------------------------------------------------------- */

static void drop_rows(const fl_table_gpu *x, fl_device_rows *r)
{
    fl_gpu *g = x->mirror.gpu;

    g->m->free(g->d, g->queue, r->row);
    g->m->free(g->d, g->queue, r->index);
    r->row = NULL;
    r->index = NULL;
    r->room = 0;
}

static size_t places_for(int64_t room)
{
    size_t places = 16;

    while (places < 2 * (size_t)room)
        places *= 2;
    return places;
}

/* Memory for `room` rows and an empty index of them. */
static fleet_status lay_out(const fl_table_gpu *x, fl_device_rows *r,
                            int64_t room)
{
    size_t places = places_for(room);
    fl_gpu *g = x->mirror.gpu;
    void *row, *index;

    r->row = NULL;
    r->index = NULL;
    FL_TRY(g->m->alloc(g->d, g->queue, (size_t)(room * r->stride), &row));
    r->row = row;
    FL_TRY(
        g->m->alloc(g->d, g->queue, places * sizeof(fl_device_entry), &index));
    r->index = index;
    r->room = room;
    r->mask = places - 1;
    return g->m->fill(g->d, g->queue, index, 0,
                      places * sizeof(fl_device_entry));
}

/* From now on this is the table: it has its rows, which are put into its
 * index. */
static fleet_status take_rows(fl_table_gpu *x, const fl_device_rows *next)
{
    fl_gpu *g = x->mirror.gpu;
    const fl_device_kernel *k =
        g->m->kernel(g->d, "lookup.index", FLEET_FLOAT32);
    fl_device_arg table = {.data = x->mirror.on_gpu, .rows = next->n};

    FL_TRY(copy_bytes(x, x->mirror.on_gpu, next, sizeof *next, FL_TO_DEVICE));
    drop_rows(x, &x->now);
    x->now = *next;
    x->known = next->n;
    x->known_at = x->offered;
    return k->run(g->d, g->queue, &(fl_device_step){.arg = &table, .n_arg = 1});
}

static fleet_status no_room(const fl_table_gpu *x, fleet_status status,
                            int64_t room)
{
    return fl_fail_in(status, "table \"%s\", room for %" PRId64 " rows",
                      rows_of(x)->name, room);
}

/* --- to the GPU and back ------------------------------------------------- */

static size_t row_bytes(const fl_rows *r)
{
    return (size_t)(r->dim + fl_rows_floats(r)) * sizeof(float);
}

int64_t fl_table_gpu_stride(const fl_rows *r)
{
    size_t used = sizeof(fl_row_head) + row_bytes(r) + sizeof(uint64_t);

    return (int64_t)((used + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN);
}

void fl_table_gpu_write_row(const fl_rows *rows, char *to, uint64_t key,
                            const float *weights)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)weights - 1;

    memcpy(to, head, sizeof *head + row_bytes(rows));
    memcpy(to + fl_table_gpu_stride(rows) - sizeof key, &key, sizeof key);
}

int64_t fl_table_gpu_bytes(const fl_rows *rows, int64_t n)
{
    return n * fl_table_gpu_stride(rows) +
           (int64_t)(places_for(n) * sizeof(fl_device_entry));
}

static fl_device_rows describe_table(const fl_rows *r)
{
    return (fl_device_rows){
        .n = r->subset ? 0 : r->methods->count(r),
        .stride = fl_table_gpu_stride(r),
        .kind = (int32_t)r->filler.kind,
        .a = r->filler.a,
        .b = r->filler.b,
        .seed = fl_filler_row_seed(&r->filler),
        .n_float = fl_rows_floats(r),
        .state = r->initial_state,
        .secret = {fl_secret[0], fl_secret[1]},
    };
}

/* Rows under way: `used` bytes of a piece, the next one's place beyond. */
typedef struct crossing {
    const fl_table_gpu *x;
    char *piece, *at; /* pinned; in the GPU's memory */
    size_t stride, size, used;
    int64_t n; /* rows that were sent */
} crossing;

/* Of at most that many rows. */
static fleet_status begin_crossing(crossing *c, const fl_table_gpu *x,
                                   const fl_device_rows *r, int64_t most)
{
    *c = (crossing){.x = x, .at = r->row, .stride = (size_t)r->stride};
    c->size = c->stride > PIECE ? c->stride : PIECE / c->stride * c->stride;
    if ((size_t)most < c->size / c->stride)
        c->size = (size_t)most * c->stride;
    return FL_NEW(&c->piece, c->size);
}

static fleet_status send_piece(crossing *c)
{
    FL_TRY(copy_bytes(c->x, c->at, c->piece, c->used, FL_TO_DEVICE));
    c->at += c->used;
    c->used = 0;
    return FLEET_OK;
}

static fleet_status send_row(void *arg, int bucket, uint64_t key,
                             const float *weights)
{
    crossing *c = arg;

    (void)bucket;
    fl_table_gpu_write_row(rows_of(c->x), c->piece + c->used, key, weights);
    c->used += c->stride;
    c->n++;
    return c->used < c->size ? FLEET_OK : send_piece(c);
}

static fleet_status send_rows(const fl_table_gpu *x, fl_device_rows *to)
{
    fl_rows *rows = rows_of(x);
    const fl_row_subset *subset = rows->subset;
    fleet_status status;
    crossing c;

    FL_TRY(begin_crossing(&c, x, to, subset ? to->room : to->n));
    status = subset ? subset->each(subset, rows, send_row, &c)
                    : rows->methods->each(rows, send_row, &c);
    if (status == FLEET_OK)
        status = send_piece(&c);
    to->n = c.n;
    fl_free(c.piece);
    return status;
}

/* New rows of a subset are of its keys; else there are more than are known. */
static int64_t first_room(const fl_table_gpu *x, int64_t n)
{
    const fl_row_subset *subset = rows_of(x)->subset;

    return subset ? subset->n : n + n / 2;
}

static fleet_status check_subset(const fl_table_gpu *x)
{
    const fl_rows *rows = rows_of(x);

    if (rows->filler.vector_at > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "table \"%s\" comes from a training with embedx_dim: "
                       "its rows are read on the host alone",
                       rows->name);
    if (x->by_pass && !rows->subset)
        return fl_fail(FLEET_ESTATE,
                       "table \"%s\": a_sync_configs.use_ps_gpu: its rows are "
                       "on the GPU in a pass alone: call "
                       "fleet_psgpu_begin_pass() before",
                       rows->name);
    return FLEET_OK;
}

/* The GPU's rows are out of date: their memory goes first. */
static fleet_status send_all(fl_table_gpu *x)
{
    fl_device_rows next = describe_table(rows_of(x));
    int64_t room = first_room(x, next.n);
    fleet_status status;

    FL_TRY(check_subset(x));
    drop_rows(x, &x->now);
    status = lay_out(x, &next, room);
    if (status != FLEET_OK)
        status = no_room(x, status, room);
    if (status == FLEET_OK)
        status = send_rows(x, &next);
    if (status != FLEET_OK) {
        drop_rows(x, &next);
        return status;
    }
    x->epoch = fl_rows_epoch(rows_of(x));
    return take_rows(x, &next);
}

/* Wait until the count is up to date. */
static fleet_status wait_for_count(fl_table_gpu *x)
{
    const fl_device_rows *on_gpu = x->mirror.on_gpu;

    FL_TRY(fl_gpu_wait(x->mirror.gpu));
    FL_TRY(copy_bytes(x, &x->known, &on_gpu->n, sizeof x->known, FL_TO_HOST));
    FL_TRY(fl_gpu_wait(x->mirror.gpu));
    x->known_at = x->offered;
    return FLEET_OK;
}

static fleet_status keep_rows(fl_rows *rows, const char *from, size_t stride,
                              size_t bytes)
{
    const fl_row_subset *subset = rows->subset;
    const char *end = from + bytes;
    uint64_t key;
    float *row;

    if (subset)
        return subset->keep(subset, rows, from, stride,
                            (int64_t)(bytes / stride));
    for (; from < end; from += stride) {
        memcpy(&key, from + stride - sizeof key, sizeof key);
        FL_TRY(rows->methods->make(rows, &key, 1, &row));
        memcpy(fl_row_of(row), from, sizeof(fl_row_head) + row_bytes(rows));
    }
    return FLEET_OK;
}

static fleet_status fetch_rows(const fl_table_gpu *x, crossing *c, int64_t n)
{
    size_t left = (size_t)n * c->stride;

    while (left > 0) {
        size_t bytes = left < c->size ? left : c->size;

        FL_TRY(copy_bytes(x, c->piece, c->at, bytes, FL_TO_HOST));
        FL_TRY(fl_gpu_wait(x->mirror.gpu));
        FL_TRY(keep_rows(rows_of(x), c->piece, c->stride, bytes));
        c->at += bytes;
        left -= bytes;
    }
    return FLEET_OK;
}

/* Kernels add rows and drop none: all rows of the host's table stay, and
 * change. One that has rows out of memory has a new epoch all the time. */
static fleet_status count_rows(fl_table_gpu *x)
{
    if (!rows_of(x)->methods->want && x->epoch != fl_rows_epoch(rows_of(x)))
        return fl_fail(FLEET_ESTATE,
                       "table \"%s\": rows were erased while newer ones were "
                       "on the GPU: they have to be fetched first",
                       rows_of(x)->name);
    FL_TRY(wait_for_count(x));
    x->now.n = x->known;
    return FLEET_OK;
}

static fleet_status fetch_all(fl_table_gpu *x)
{
    fleet_status status;
    crossing c;

    FL_TRY(count_rows(x));
    FL_TRY(begin_crossing(&c, x, &x->now, x->known));
    status = fetch_rows(x, &c, x->known);
    fl_free(c.piece);
    return status;
}

static fleet_status copy_table(fl_mirror *m, bool to_gpu)
{
    return to_gpu ? send_all(table_of(m)) : fetch_all(table_of(m));
}

static void destroy_table(fl_mirror *m)
{
    fl_gpu *g = m->gpu;

    if (fl_gpu_is_ours(g)) {
        drop_rows(table_of(m), &table_of(m)->now);
        g->m->free(g->d, g->queue, m->on_gpu);
    }
    fl_free(m);
}

static void leave_table(fl_mirror *m)
{
    if (fl_gpu_is_ours(m->gpu))
        drop_rows(table_of(m), &table_of(m)->now);
}

static fleet_status make_table(fl_gpu *g, void *host, size_t bytes,
                               fl_mirror **m)
{
    static const fl_mirror_class tables = {copy_table, destroy_table,
                                           leave_table};
    fl_table_gpu *x;
    fleet_status status;

    (void)host;
    FL_TRY(FL_NEW(&x, sizeof *x));
    *m = &x->mirror;
    x->mirror.methods = &tables;
    status = g->m->alloc(g->d, g->queue, bytes, &x->mirror.on_gpu);
    if (status != FLEET_OK)
        fl_free(x);
    return status;
}

fleet_status fl_table_gpu_make(struct fl_store *s, fl_gpu *gpu, fl_rows *rows,
                               fl_table_gpu **x)
{
    fl_mirror *m;

    if (rows->methods->want && !s->gpu_passes)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "table \"%s\": its rows may be out of memory: they "
                       "cannot be on a GPU",
                       rows->name);
    if (!fl_rows_are_floats(rows))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "table \"%s\": rows in %s cannot be on a GPU",
                       rows->name, fl_storage_names[rows->storage]);
    FL_TRY(fl_mirror_of(s, gpu, rows, sizeof(fl_device_rows), make_table, &m));
    *x = table_of(m);
    (*x)->by_pass = s->gpu_passes;
    return FLEET_OK;
}

/* --- room ---------------------------------------------------------------- */

/* A table has no more rows than ids that differ. */
static int64_t limited_rows(const fl_table_gpu *x, int64_t rows)
{
    const fl_row_subset *subset = rows_of(x)->subset;
    int64_t most = subset ? subset->n : rows_of(x)->modulo;

    return most && rows > most ? most : rows;
}

static fleet_status move_rows(fl_table_gpu *x, int64_t room)
{
    fl_device_rows next = x->now;
    fleet_status status;

    next.n = x->known;
    status = lay_out(x, &next, room);
    if (status == FLEET_OK)
        status = copy_bytes(x, next.row, x->now.row,
                            (size_t)(next.n * next.stride), FL_ON_DEVICE);
    if (status == FLEET_OK)
        return take_rows(x, &next);
    drop_rows(x, &next);
    return no_room(x, status, room);
}

fleet_status fl_table_gpu_room(fl_table_gpu *x, int64_t keys)
{
    int64_t under_way = x->offered - x->known_at, least, more;

    if (limited_rows(x, x->known + under_way + keys) > x->now.room) {
        FL_TRY(wait_for_count(x));
        least = limited_rows(x, x->known + ROOM_FOR * keys);
        more = limited_rows(x, x->now.room + x->now.room / 2);
        if (least > x->now.room)
            FL_TRY(move_rows(x, more > least ? more : least));
    }
    x->offered += keys;
    return FLEET_OK;
}

fl_gpu_rows fl_table_gpu_count(const fl_table_gpu *x, fl_rows_count *pinned)
{
    const fl_device_rows *on_gpu = x->mirror.on_gpu;

    pinned->offered = x->offered;
    return (fl_gpu_rows){.to = &pinned->n,
                         .from = &on_gpu->n,
                         .bytes = sizeof pinned->n,
                         .n = 1,
                         .kind = FL_TO_HOST};
}

/* One from before the table was sent anew, or waited for, says nothing. */
void fl_table_gpu_counted(fl_table_gpu *x, const fl_rows_count *count)
{
    if (count->offered <= x->known_at)
        return;
    x->known = count->n;
    x->known_at = count->offered;
}

/* --- another subset ------------------------------------------------------- */

typedef struct changing {
    fl_table_gpu *x;
    fl_row_change *to;
    fl_device_rows next;
    int64_t *slot;  /* of shared keys that have rows, then of leaving rows */
    int64_t n_stay; /* how many have rows */
    bool *stays;    /* by row */
    void *keys;     /* on the GPU: a count, n keys, n slots; n slots */
    void *piece;    /* on the GPU: leaving rows, one behind the other */
} changing;

static fleet_status run_kernel(const fl_table_gpu *x, const char *name,
                               const fl_device_step *step)
{
    fl_gpu *g = x->mirror.gpu;

    return g->m->kernel(g->d, name, FLEET_FLOAT32)->run(g->d, g->queue, step);
}

/* Where the shared keys' rows are; -1: it has none of that key. */
static fleet_status find_shared(const changing *c)
{
    const fl_table_gpu *x = c->x;
    int64_t n = c->to->n_shared, *count = c->keys;
    fl_device_lookup config = {.dim = rows_of(x)->dim, .capacity = n};
    uint64_t *key = (uint64_t *)(count + 1);
    int64_t *slot = count + 1 + n;
    fl_device_arg arg[] = {[FL_FIND_SLOT] = {.data = slot},
                           [FL_FIND_TABLE] = {.data = x->mirror.on_gpu},
                           [FL_FIND_KEY] = {.data = key},
                           [FL_FIND_COUNT] = {.data = count}};

    if (n == 0)
        return FLEET_OK;
    FL_TRY(copy_bytes(x, count, &n, sizeof n, FL_TO_DEVICE));
    FL_TRY(copy_bytes(x, key, c->to->shared, (size_t)n * sizeof *key,
                      FL_TO_DEVICE));
    FL_TRY(run_kernel(
        x, "lookup.find",
        &(fl_device_step){.arg = arg, .n_arg = 5, .config = &config}));
    FL_TRY(copy_bytes(x, c->slot, slot, (size_t)n * sizeof *slot, FL_TO_HOST));
    return fl_gpu_wait(x->mirror.gpu);
}

/* Which rows stay, and then, which leave. */
static void sort_rows(changing *c)
{
    for (int64_t i = 0; i < c->to->n_shared; i++)
        if (c->slot[i] >= 0) {
            c->stays[c->slot[i]] = true;
            c->slot[c->n_stay++] = c->slot[i];
        }
    for (int64_t row = 0, at = c->n_stay; row < c->x->known; row++)
        if (!c->stays[row])
            c->slot[at++] = row;
}

/* The rows of these numbers, one behind the other on the GPU. */
static fleet_status gather_rows(const changing *c, char *to,
                                const int64_t *slot, int64_t n)
{
    fl_device_arg arg[] = {[FL_MOVE_TO] = {.data = to, .rows = n},
                           [FL_MOVE_TABLE] = {.data = c->x->mirror.on_gpu},
                           [FL_MOVE_SLOT] = {.data = c->keys}};

    FL_TRY(copy_bytes(c->x, c->keys, slot, (size_t)n * sizeof *slot,
                      FL_TO_DEVICE));
    return run_kernel(c->x, "lookup.move",
                      &(fl_device_step){.arg = arg, .n_arg = 3});
}

static fleet_status fill_next(changing *c)
{
    size_t staged = (size_t)(c->to->n_staged * c->next.stride);

    FL_TRY(copy_bytes(c->x, c->next.row, c->to->staged, staged, FL_TO_DEVICE));
    c->next.n = c->to->n_staged + c->n_stay;
    return gather_rows(c, c->next.row + staged, c->slot, c->n_stay);
}

static fleet_status send_leaving_home(changing *c, crossing *way)
{
    const int64_t *slot = c->slot + c->n_stay;
    int64_t left = c->x->known - c->n_stay;

    while (left > 0) {
        int64_t most = (int64_t)(way->size / way->stride);
        int64_t n = left < most ? left : most;

        way->at = c->piece;
        FL_TRY(gather_rows(c, c->piece, slot, n));
        FL_TRY(fetch_rows(c->x, way, n));
        slot += n;
        left -= n;
    }
    return FLEET_OK;
}

static fleet_status alloc_changing(changing *c, crossing *way)
{
    int64_t n = c->x->known + c->to->n_shared;
    fl_gpu *g = c->x->mirror.gpu;

    FL_TRY(FL_NEW(&c->slot, (size_t)(n + 1) * sizeof *c->slot));
    FL_TRY(FL_NEW(&c->stays, (size_t)c->x->known + 1));
    FL_TRY(begin_crossing(way, c->x, &c->x->now, c->x->known + 1));
    c->next = c->x->now;
    FL_TRY(lay_out(c->x, &c->next, c->to->n));
    FL_TRY(g->m->alloc(g->d, g->queue, (size_t)(2 * n + 2) * sizeof(int64_t),
                       &c->keys));
    return g->m->alloc(g->d, g->queue, way->size, &c->piece);
}

static fleet_status change_rows(changing *c, crossing *way)
{
    fleet_status status = alloc_changing(c, way);

    if (status == FLEET_ENOMEM)
        return no_room(c->x, status, c->to->n);
    FL_TRY(status);
    FL_TRY(find_shared(c));
    sort_rows(c);
    FL_TRY(fill_next(c));
    FL_TRY(send_leaving_home(c, way));
    c->to->handed_over = c->n_stay;
    return take_rows(c->x, &c->next);
}

fleet_status fl_table_gpu_change(fl_table_gpu *x, fl_row_change *to)
{
    changing c = {.x = x, .to = to};
    crossing way = {0};
    fl_gpu *g = x->mirror.gpu;
    fleet_status status = count_rows(x);

    if (status == FLEET_OK)
        status = change_rows(&c, &way);
    if (status != FLEET_OK && x->now.row != c.next.row)
        drop_rows(x, &c.next);
    g->m->free(g->d, g->queue, c.keys);
    g->m->free(g->d, g->queue, c.piece);
    fl_free(way.piece);
    fl_free(c.stays);
    fl_free(c.slot);
    return status;
}
