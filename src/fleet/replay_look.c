/* replay_look.c - weights compared before and behind an update, and looked at
 * for numbers that are not finite. */
#include "fleet/replay_look.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/store/norm.h"

/* --- weights -------------------------------------------------------------- */

static fleet_status find_row(const fl_rows *rows, uint64_t key, float **row)
{
    fl_rows *r = (fl_rows *)(uintptr_t)rows;

    return r->methods->find(r, &key, 1, row);
}

/* Its weights; of an unknown row its initial ones. */
static fleet_status read_row(const fl_rows *rows, uint64_t key, float *to,
                             bool *had)
{
    float *row;

    FL_TRY(find_row(rows, key, &row));
    *had = row != NULL;
    if (row)
        fl_rows_read(rows, to, row);
    else
        fl_filler_row(&rows->filler, key, to, rows->dim);
    return FLEET_OK;
}

/* The update's next section of rows, and their table; *rows NULL: it has no
 * more. A table that there is not has none. */
static fleet_status next_rows(const fl_replay_lane *at,
                              const fl_journal_record *r, fl_update_view *v,
                              fl_section_view *s, const fl_rows **rows)
{
    bool more = true;

    *rows = NULL;
    while (!*rows && more) {
        FL_TRY(fl_update_view_next(r, v, s, &more));
        if (more && s->head->op == FL_SECTION_ROWS &&
            s->head->table < (uint32_t)at->layout->n_table)
            *rows = at->layout->table[s->head->table];
    }
    return FLEET_OK;
}

/* A block that the lane keeps, in the order of all; NULL: it is another
 * lane's. */
static const float *block_of(const fl_replay_lane *at, const fl_param *p,
                             int64_t block)
{
    if (!fl_bucket_set_has(at->own, fl_block_bucket(at->store, p, block)) ||
        fl_block_offset(p, block) < 0)
        return NULL;
    return p->flat->weight + fl_block_offset(p, block);
}

/* --- before --------------------------------------------------------------- */

static fleet_status note_rows(fl_replay_before *b, const fl_rows *rows,
                              const fl_section_view *s, size_t *n,
                              size_t *floats)
{
    size_t dim = (size_t)rows->dim, keys = s->head->n_key;

    FL_TRY(fl_grow(&b->had, &b->had_capacity, *n + keys + 1, sizeof *b->had));
    FL_TRY(fl_grow(&b->row, &b->row_capacity, *floats + keys * dim + 1,
                   sizeof *b->row));
    for (size_t i = 0; i < keys; i++, ++*n, *floats += dim)
        FL_TRY(read_row(rows, s->key[i], b->row + *floats, &b->had[*n]));
    return FLEET_OK;
}

static fleet_status note_dense(fl_replay_before *b, const fl_replay_lane *at)
{
    size_t n = 0;

    for (int i = 0; i < at->layout->n_param; i++) {
        const fl_param *p = at->layout->param[i];

        FL_TRY(fl_grow(&b->dense, &b->dense_capacity, n + (size_t)p->n + 1,
                       sizeof *b->dense));
        for (int64_t k = 0; k < fl_blocks_of(p); k++) {
            const float *from = block_of(at, p, k);
            size_t floats = from ? (size_t)fl_block_size(p, k) : 0;

            if (floats > 0)
                memcpy(b->dense + n, from, floats * sizeof *from);
            n += floats;
        }
    }
    return FLEET_OK;
}

fleet_status fl_replay_note(fl_replay_before *b, const fl_replay_lane *at,
                            const fl_journal_record *r)
{
    size_t n = 0, floats = 0;
    fl_update_view v;
    fl_section_view s;
    const fl_rows *rows;

    FL_TRY(fl_update_view_of(r, &v));
    FL_TRY(next_rows(at, r, &v, &s, &rows));
    while (rows) {
        FL_TRY(note_rows(b, rows, &s, &n, &floats));
        FL_TRY(next_rows(at, r, &v, &s, &rows));
    }
    return note_dense(b, at);
}

void fl_replay_before_done(fl_replay_before *b)
{
    fl_free(b->row);
    fl_free(b->dense);
    fl_free(b->had);
    *b = (fl_replay_before){0};
}

/* --- changes -------------------------------------------------------------- */

/* The largest change, and all of them. */
typedef struct change {
    double squares;
    double most; /* -1: none yet */
    int64_t numbers, at;
    uint64_t key;
    float from, to;
} change;

static void compare_numbers(change *c, const float *was, const float *is,
                            int64_t n, uint64_t key, int64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        double d = (double)is[i] - (double)was[i];

        if (memcmp(&was[i], &is[i], sizeof *is) == 0)
            continue;
        c->numbers++;
        c->squares += d * d;
        if (fabs(d) <= c->most) /* what is no number is not */
            continue;
        c->most = isnan(d) ? (double)INFINITY : fabs(d);
        c->key = key;
        c->at = first + i;
        c->from = was[i];
        c->to = is[i];
    }
}

static void add_numbers(fl_text *out, const change *c)
{
    fl_text_add(out, "number %" PRId64 ": ", c->at);
    fl_text_float(out, c->from);
    fl_text_add(out, " to ");
    fl_text_float(out, c->to);
    fl_text_add(out, "\n");
}

/* Where, in what was noted, the section's rows begin. */
typedef struct noted {
    size_t n, floats;
} noted;

static fleet_status compare_rows(const fl_replay_before *b, const fl_rows *rows,
                                 const fl_section_view *s, noted *from,
                                 change *c, uint32_t *fresh)
{
    float *now = fl_alloc_array((size_t)rows->dim + 1, sizeof *now);
    fleet_status status = now ? FLEET_OK : FLEET_ENOMEM;

    for (uint32_t i = 0; status == FLEET_OK && i < s->head->n_key; i++) {
        bool has = true;

        status = read_row(rows, s->key[i], now, &has);
        *fresh += has && !b->had[from->n];
        compare_numbers(c, b->row + from->floats, now, rows->dim, s->key[i], 0);
        from->n++;
        from->floats += (size_t)rows->dim;
    }
    fl_free(now);
    return status;
}

static fleet_status changes_of_rows(const fl_replay_before *b,
                                    const fl_rows *rows,
                                    const fl_section_view *s, noted *from,
                                    fl_text *out)
{
    change c = {.most = -1};
    uint32_t fresh = 0;

    FL_TRY(compare_rows(b, rows, s, from, &c, &fresh));
    fl_text_add(out, "  table \"%s\": gradients of %u rows, %u of them new",
                rows->name, s->head->n_key, fresh);
    if (c.numbers == 0) {
        fl_text_add(out, "; no weight of them is another one\n");
        return FLEET_OK;
    }
    fl_text_add(out, "; changed by a norm of %.6g, most in row %" PRIu64 ", ",
                sqrt(c.squares), c.key);
    add_numbers(out, &c);
    return FLEET_OK;
}

static void changes_of_dense(const fl_replay_before *b,
                             const fl_replay_lane *at, fl_text *out)
{
    size_t n = 0;

    for (int i = 0; i < at->layout->n_param; i++) {
        const fl_param *p = at->layout->param[i];
        change c = {.most = -1};

        for (int64_t k = 0; k < fl_blocks_of(p); k++) {
            const float *now = block_of(at, p, k);
            int64_t floats = now ? fl_block_size(p, k) : 0;

            if (floats > 0)
                compare_numbers(&c, b->dense + n, now, floats, 0, k * FL_BLOCK);
            n += (size_t)floats;
        }
        if (c.numbers == 0)
            continue;
        fl_text_add(out,
                    "  parameter \"%s\": %" PRId64
                    " numbers changed by a norm of %.6g, most in ",
                    p->name, c.numbers, sqrt(c.squares));
        add_numbers(out, &c);
    }
}

fleet_status fl_replay_changes(const fl_replay_before *b,
                               const fl_replay_lane *at,
                               const fl_journal_record *r, fl_text *out)
{
    noted from = {0};
    fl_update_view v;
    fl_section_view s;
    const fl_rows *rows;

    FL_TRY(fl_update_view_of(r, &v));
    FL_TRY(next_rows(at, r, &v, &s, &rows));
    while (rows) {
        FL_TRY(changes_of_rows(b, rows, &s, &from, out));
        FL_TRY(next_rows(at, r, &v, &s, &rows));
    }
    changes_of_dense(b, at, out);
    return out->status;
}

/* --- not finite ----------------------------------------------------------- */

/* A walk over all rows of a table. */
typedef struct walk {
    const fl_rows *rows;
    float *now; /* dim of them */
    fl_text *where;
} walk;

static void look_at_row(const walk *w, uint64_t key, const float *row)
{
    fl_rows_read(w->rows, w->now, row);
    if (w->where->length == 0 && !fl_all_finite(w->now, w->rows->dim))
        fl_text_add(w->where, "table \"%s\", row %" PRIu64, w->rows->name, key);
}

static fleet_status look_at_one(void *arg, int bucket, uint64_t key,
                                const float *row)
{
    (void)bucket;
    look_at_row(arg, key, row);
    return FLEET_OK;
}

/* Of the section's keys; NULL: of all that there are. */
static fleet_status look_at_rows(const fl_rows *rows, const fl_section_view *s,
                                 fl_text *where)
{
    walk w = {rows, fl_alloc_array((size_t)rows->dim + 1, sizeof *w.now),
              where};
    fleet_status status = w.now ? FLEET_OK : FLEET_ENOMEM;

    if (status == FLEET_OK && !s)
        status = rows->methods->each(rows, look_at_one, &w);
    for (uint32_t i = 0; s && status == FLEET_OK && i < s->head->n_key; i++) {
        float *row;

        status = find_row(rows, s->key[i], &row);
        if (status == FLEET_OK && row)
            look_at_row(&w, s->key[i], row);
    }
    fl_free(w.now);
    return status;
}

static void look_at_dense(const fl_replay_lane *at, fl_text *where)
{
    for (int i = 0; i < at->layout->n_param; i++) {
        const fl_param *p = at->layout->param[i];

        for (int64_t k = 0; k < fl_blocks_of(p); k++) {
            const float *now = block_of(at, p, k);

            if (now && where->length == 0 &&
                !fl_all_finite(now, fl_block_size(p, k)))
                fl_text_add(where,
                            "parameter \"%s\", numbers from %" PRId64 " on",
                            p->name, k * FL_BLOCK);
        }
    }
}

static fleet_status look_at_sections(const fl_replay_lane *at,
                                     const fl_journal_record *r, fl_text *where)
{
    fl_update_view v;
    fl_section_view s;
    const fl_rows *rows;

    FL_TRY(fl_update_view_of(r, &v));
    FL_TRY(next_rows(at, r, &v, &s, &rows));
    while (rows && where->length == 0) {
        FL_TRY(look_at_rows(rows, &s, where));
        FL_TRY(next_rows(at, r, &v, &s, &rows));
    }
    return FLEET_OK;
}

fleet_status fl_replay_nonfinite(const fl_replay_lane *at,
                                 const fl_journal_record *r, fl_text *where)
{
    look_at_dense(at, where);
    if (r)
        FL_TRY(look_at_sections(at, r, where));
    for (int i = 0; !r && i < at->layout->n_table && where->length == 0; i++)
        FL_TRY(look_at_rows(at->layout->table[i], NULL, where));
    return where->status;
}

/* --- whose ---------------------------------------------------------------- */

fleet_status fl_replay_whose(const fl_journal_record *r, fl_text *out)
{
    fl_update_view v;

    FL_TRY(fl_update_view_of(r, &v));
    fl_text_add(out, "update %" PRIu64 ": %u batches, clip %.9g, of",
                v.head->version + 1, v.head->n_batch, (double)v.head->clip);
    for (uint32_t i = 0; i < v.head->n_stream; i++)
        fl_text_add(out, "%s worker %u step %" PRIu64, i > 0 ? "," : "",
                    v.stream[i].stream, v.stream[i].step);
    return out->status;
}
