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

static int64_t stride_of(const fl_rows *r)
{
    size_t used = sizeof(fl_row_head) + row_bytes(r) + sizeof(uint64_t);

    return (int64_t)((used + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN);
}

int64_t fl_table_gpu_bytes(const fl_rows *rows, int64_t n)
{
    return n * stride_of(rows) +
           (int64_t)(places_for(n) * sizeof(fl_device_entry));
}

static fl_device_rows describe_table(const fl_rows *r)
{
    return (fl_device_rows){
        .n = r->subset ? 0 : r->methods->count(r),
        .stride = stride_of(r),
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
    const fl_row_head *head = (const fl_row_head *)(const void *)weights - 1;

    (void)bucket;
    memcpy(c->piece + c->used, head, sizeof *head + row_bytes(rows_of(c->x)));
    c->used += c->stride;
    memcpy(c->piece + c->used - sizeof key, &key, sizeof key);
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

static fleet_status keep_row(fl_rows *rows, const char *from, size_t stride)
{
    uint64_t key;
    float *row;

    memcpy(&key, from + stride - sizeof key, sizeof key);
    FL_TRY(rows->methods->make(rows, &key, 1, &row));
    memcpy(fl_row_of(row), from, sizeof(fl_row_head) + row_bytes(rows));
    return FLEET_OK;
}

static fleet_status keep_rows(fl_rows *rows, const char *from, size_t stride,
                              size_t bytes)
{
    const fl_row_subset *subset = rows->subset;

    if (subset)
        return subset->keep(subset, rows, from, stride,
                            (int64_t)(bytes / stride));
    for (size_t at = 0; at < bytes; at += stride)
        FL_TRY(keep_row(rows, from + at, stride));
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
static fleet_status fetch_all(fl_table_gpu *x)
{
    fleet_status status;
    crossing c;

    if (!rows_of(x)->methods->want && x->epoch != fl_rows_epoch(rows_of(x)))
        return fl_fail(FLEET_ESTATE,
                       "table \"%s\": rows were erased while newer ones were "
                       "on the GPU: they have to be fetched first",
                       rows_of(x)->name);
    FL_TRY(wait_for_count(x));
    x->now.n = x->known;
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
