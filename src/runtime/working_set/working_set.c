/* working_set.c - rows of a pass: from their table to a GPU, and back. */
#include "runtime/working_set/working_set.h"

#include <string.h>

#include "runtime/lookup/wanted_rows.h"

enum { CHUNK = FL_ROWS_AT_ONCE };

static const fl_working_set *set_of(const fl_row_subset *s)
{
    return (const fl_working_set *)(const void *)s;
}

static int64_t chunk_of(int64_t left)
{
    return left < CHUNK ? left : CHUNK;
}

/* The next rows are asked for while these ones are copied. */
static void expect_next(fl_rows *rows, const uint64_t *key, int64_t n)
{
    if (rows->methods->expect && n > 0)
        rows->methods->expect(rows, key, n);
}

/* --- to the GPU ----------------------------------------------------------- */

static fleet_status visit_part(const fl_key_set *p, fl_rows *rows,
                               fl_row_visitor *visit, void *arg)
{
    for (int64_t i = 0; i < p->n; i += CHUNK)
        FL_TRY(fl_rows_visit_first(rows, p->key + i, p->n - i, visit, arg));
    return FLEET_OK;
}

static fleet_status each_row(const fl_row_subset *s, fl_rows *rows,
                             fl_row_visitor *visit, void *arg)
{
    const fl_pass_keys *keys = &set_of(s)->keys;

    for (int i = 0; i < FL_N_PART; i++)
        FL_TRY(visit_part(&keys->part[i], rows, visit, arg));
    return FLEET_OK;
}

/* --- and back ------------------------------------------------------------- */

static int64_t take_keys(uint64_t key[CHUNK], const char *from, size_t stride,
                         int64_t n)
{
    n = chunk_of(n);
    for (int64_t i = 0; i < n; i++)
        memcpy(&key[i], from + (size_t)(i + 1) * stride - sizeof *key,
               sizeof *key);
    return n;
}

static fleet_status keep_chunk(fl_rows *rows, const uint64_t *key, int64_t n,
                               const char *from, size_t stride)
{
    size_t bytes = sizeof(fl_row_head) +
                   (size_t)(rows->dim + fl_rows_floats(rows)) * sizeof(float);
    float *row[CHUNK];

    FL_TRY(rows->methods->make(rows, key, n, row));
    for (int64_t i = 0; i < n; i++)
        memcpy(fl_row_of(row[i]), from + (size_t)i * stride, bytes);
    return FLEET_OK;
}

static fleet_status keep_rows(const fl_row_subset *s, fl_rows *rows,
                              const char *from, size_t stride, int64_t n)
{
    uint64_t key[CHUNK], next[CHUNK];

    (void)s;
    for (int64_t i = 0, now; i < n; i += now) {
        const char *at = from + (size_t)i * stride;
        fl_wanted_rows w = {0};
        fleet_status status;

        now = take_keys(key, at, stride, n - i);
        status = fl_rows_bring(&w, rows, key, now);
        if (status == FLEET_OK) {
            expect_next(rows, next,
                        take_keys(next, at + (size_t)now * stride, stride,
                                  n - i - now));
            status = keep_chunk(rows, key, now, at, stride);
        }
        fl_wanted_rows_done(&w);
        FL_TRY(status);
    }
    return FLEET_OK;
}

/* --- a pass --------------------------------------------------------------- */

fleet_status fl_working_set_begin(fl_working_set *w, fl_store *s, fl_gpu *gpu,
                                  fl_rows *rows)
{
    int64_t n = fl_pass_keys_count(&w->keys);
    fleet_status status;
    fl_table_gpu *x;

    FL_TRY(fl_table_gpu_make(s, gpu, rows, &x));
    w->on_gpu = x;
    w->subset = (fl_row_subset){n > 0 ? n : 1, each_row, keep_rows};
    w->rows = rows;
    rows->subset = &w->subset;
    status = fl_mirror_use(s, rows, true, false);
    if (status == FLEET_OK)
        return FLEET_OK;
    rows->subset = NULL;
    w->rows = NULL;
    return status;
}

fleet_status fl_working_set_end(fl_working_set *w, fl_store *s, bool lost)
{
    fleet_status status = FLEET_OK;

    if (!w->rows)
        return FLEET_OK;
    status = fl_mirror_leave(s, w->rows, lost);
    if (status != FLEET_OK && !lost)
        return status;
    w->rows->subset = NULL;
    w->rows = NULL;
    return status;
}

void fl_working_set_take(fl_working_set *w, fl_staged_rows *next)
{
    fl_pass_keys keys = w->keys;

    w->keys = next->keys;
    next->keys = keys;
    next->is_staged = false;
}

/* While both are on the GPU. */
static fleet_status hand_over(fl_working_set *w, fl_staged_rows *next,
                              int64_t *handed_over)
{
    int64_t n = fl_pass_keys_count(&next->keys);
    fl_row_change to = {.staged = next->staged,
                        .n_staged = next->n_staged,
                        .shared = next->key + next->n_fresh,
                        .n_shared = next->n_shared,
                        .n = n > 0 ? n : 1};
    fl_gpu *gpu = w->on_gpu->mirror.gpu;
    fleet_status status;

    fl_gpu_lock(gpu);
    status = fl_table_gpu_change(w->on_gpu, &to);
    fl_gpu_unlock(gpu);
    FL_TRY(status);
    w->subset.n = to.n;
    *handed_over = to.handed_over;
    fl_working_set_take(w, next);
    return FLEET_OK;
}

/* A load may have changed rows at home since they were copied, also where the
 * GPU has its rows of after that load. */
static bool is_of_now(const fl_working_set *w, fl_store *s,
                      const fl_staged_rows *next)
{
    return next->is_staged && !w->on_gpu->mirror.gpu_is_old &&
           next->written == fl_store_times_written(s);
}

fleet_status fl_working_set_move(fl_working_set *w, fl_store *s,
                                 fl_staged_rows *next, bool fits,
                                 int64_t *handed_over)
{
    fl_gpu *gpu = w->on_gpu->mirror.gpu;
    fl_rows *rows = w->rows;

    *handed_over = 0;
    if (fits && is_of_now(w, s, next)) {
        fleet_status status = hand_over(w, next, handed_over);

        if (status != FLEET_ENOMEM)
            return status;
        fl_error_clear();
    }
    FL_TRY(fl_working_set_end(w, s, false));
    fl_working_set_take(w, next);
    return fl_working_set_begin(w, s, gpu, rows);
}

void fl_working_set_done(fl_working_set *w)
{
    fl_pass_keys_done(&w->keys);
}
