/* statistics.c - mean and deviation of csv columns, in one pass.
 *
 * The lines are taken in pieces of a fixed size. A piece's count, mean and sum
 * of squared differences are made by Welford's recurrence (1962) and the pieces
 * are merged in the order of the files (Chan, Golub, LeVeque 1983): sound for
 * numbers far from 0, and the same bits with any number of threads.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/format/csv.h"
#include "data/stream_internal.h"

enum { PIECE = 4096 };

typedef struct moments {
    double n, mean, squares;
} moments;

static void add(moments *m, double x)
{
    double d = x - m->mean;

    m->n += 1;
    m->mean += d / m->n;
    m->squares += d * (x - m->mean);
}

static void merge(moments *m, const moments *more)
{
    double n = m->n + more->n, d = more->mean - m->mean;

    if (more->n == 0)
        return;
    m->mean += d * (more->n / n);
    m->squares += more->squares + d * d * (m->n * more->n / n);
    m->n = n;
}

/* One line's cells, of the columns that standardize. */
static fleet_status add_line(const fl_parser *p, const fl_csv_cells *cells,
                             const fl_line *line, moments *m)
{
    for (int i = 0; i < p->layout.n_field; i++) {
        const fl_field *f = &p->layout.field[i];

        for (int j = f->first_column; j < f->first_column + f->n_column; j++) {
            const fl_column *column = &p->layout.column[j];
            const fl_cell *cell = &cells->cell[p->place[line->file][j]];
            double x;

            if (!fl_standardizes(column->transform))
                continue;
            if (!fl_csv_is_missing(p, cell)) {
                FL_TRY(fl_csv_number(p, line, f, column, cell, &x));
                add(m, x);
            }
            m++;
        }
    }
    return FLEET_OK;
}

/* The first slot's values become the piece's moments. */
fleet_status fl_parse_statistics(const fl_parser *p, fl_scratch *scratch,
                                 fl_batch_buffer *box)
{
    const size_t n = (size_t)p->layout.n_column;
    fl_slot_data *out = &box->batch.slot[0];

    box->batch.rows = (int64_t)box->lines.n;
    FL_TRY(fl_grow(&out->values, &box->capacity[0], n, sizeof(moments)));
    memset(out->values, 0, n * sizeof(moments));
    for (size_t i = 0; i < box->lines.n; i++) {
        const fl_line *line = &box->lines.line[i];

        FL_TRY(fl_csv_cut(p, &scratch->cells, line));
        FL_TRY(add_line(p, &scratch->cells, line, out->values));
    }
    return FLEET_OK;
}

static fleet_status merge_pieces(const fl_stream_spec *spec, moments *sum,
                                 int n)
{
    fl_stream *stream;
    fl_batch *piece;
    fleet_status status;

    FL_TRY(fl_stream_open_as(&stream, spec, fl_parse_statistics));
    while ((status = fl_stream_next(stream, &piece)) == FLEET_OK) {
        for (int i = 0; i < n; i++)
            merge(&sum[i], (const moments *)piece->slot[0].values + i);
        fl_stream_release(stream, piece);
    }
    fl_stream_close(stream);
    return status == FLEET_EEND ? FLEET_OK : status;
}

static fleet_status make(fl_statistics *s, int n)
{
    *s = (fl_statistics){.n = n};
    s->mean = fl_alloc_array((size_t)n, sizeof *s->mean);
    s->deviation = fl_alloc_array((size_t)n, sizeof *s->deviation);
    if (s->mean && s->deviation)
        return FLEET_OK;
    fl_statistics_done(s);
    return FLEET_ENOMEM;
}

fleet_status fl_statistics_copy(fl_statistics *s, const fl_statistics *from)
{
    const size_t size = (size_t)from->n * sizeof(double);

    FL_TRY(make(s, from->n));
    memcpy(s->mean, from->mean, size);
    memcpy(s->deviation, from->deviation, size);
    return FLEET_OK;
}

void fl_statistics_done(fl_statistics *s)
{
    fl_free(s->mean);
    fl_free(s->deviation);
    *s = (fl_statistics){0};
}

static fleet_status finish(fl_statistics *s, const moments *sum)
{
    for (int i = 0; i < s->n; i++) {
        double deviation = sum[i].n > 0 ? sqrt(sum[i].squares / sum[i].n) : 0.0;

        s->mean[i] = sum[i].mean;
        s->deviation[i] = deviation > 0 ? deviation : 1.0;
        if (!isfinite(s->mean[i]) || !isfinite(deviation)) {
            fl_statistics_done(s);
            return fl_fail(FLEET_ENUMERIC,
                           "standardize: the numbers of column %d of %d are "
                           "too large for a mean and a deviation",
                           i + 1, s->n);
        }
    }
    return FLEET_OK;
}

static int count_columns(const fl_stream_spec *spec)
{
    int n = 0;

    for (int i = 0; i < spec->n_slot; i++)
        for (int j = 0; j < spec->slots[i].n_column; j++)
            n += fl_standardizes(fl_transform_of(&spec->slots[i], j));
    return n;
}

fleet_status fl_stream_statistics(const fl_stream_spec *spec,
                                  fl_statistics *statistics)
{
    fl_stream_spec all = *spec;
    moments *sum;
    fleet_status status;
    int n;

    *statistics = (fl_statistics){0};
    FL_TRY(fl_stream_check(spec));
    n = count_columns(spec);
    if (n == 0)
        return FLEET_OK;
    all.batch_size = PIECE;
    all.shuffle = 0;
    all.share_index = 0;
    all.share_count = 1;
    all.statistics = NULL;
    sum = fl_alloc_array((size_t)n, sizeof *sum);
    if (!sum)
        return FLEET_ENOMEM;
    status = merge_pieces(&all, sum, n);
    if (status == FLEET_OK)
        status = make(statistics, n);
    if (status == FLEET_OK)
        status = finish(statistics, sum);
    fl_free(sum);
    return status;
}

/* --- as JSON: {"mean": [...], "deviation": [...]}, exactly ---------------- */

static fleet_status put_array(fl_json *object, const char *key, const double *x,
                              int n)
{
    fl_json *array = fl_json_array();

    for (int i = 0; i < n; i++)
        if (fl_json_append(array, fl_json_double(x[i], 17)) != FLEET_OK) {
            fl_json_free(array);
            return FLEET_ENOMEM;
        }
    return fl_json_put(object, key, array);
}

fleet_status fl_statistics_save(const fl_statistics *s, fl_json **json)
{
    fl_json *object = fl_json_object();
    fleet_status status = put_array(object, "mean", s->mean, s->n);

    if (status == FLEET_OK)
        status = put_array(object, "deviation", s->deviation, s->n);
    if (status != FLEET_OK) {
        fl_json_free(object);
        return status;
    }
    *json = object;
    return FLEET_OK;
}

static fleet_status get_array(const fl_at *at, double low, double *x, int n)
{
    if (fl_at_count(at) != n)
        return fl_at_expected(at, "as many numbers as there are means");
    for (int i = 0; i < n; i++) {
        fl_at element = fl_at_index(at, i);

        FL_TRY(fl_at_double(&element, low, 1.7e308, &x[i]));
    }
    return FLEET_OK;
}

fleet_status fl_statistics_load(fl_statistics *s, const fl_at *at)
{
    static const char *const keys[] = {"mean", "deviation", NULL};
    fl_at mean = fl_at_key(at, "mean"), deviation = fl_at_key(at, "deviation");
    fleet_status status;

    *s = (fl_statistics){0};
    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_required(&mean));
    FL_TRY(fl_at_required(&deviation));
    FL_TRY(fl_at_array(&mean));
    FL_TRY(fl_at_array(&deviation));
    FL_TRY(make(s, fl_at_count(&mean)));
    status = get_array(&mean, -1.7e308, s->mean, s->n);
    if (status == FLEET_OK)
        status = get_array(&deviation, 5e-324, s->deviation, s->n);
    if (status != FLEET_OK)
        fl_statistics_done(s);
    return status;
}
