/* stream_statistics.c - mean and deviation of columns, in one pass.
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
#include "data/format/parquet.h"
#include "data/layout/sampling.h"
#include "data/layout/check_spec.h"
#include "data/stream_internal.h"

enum { PIECE = 4096 };

typedef struct moments {
    double n, mean, squares;
} moments;

static void add_value(moments *m, double x)
{
    double d = x - m->mean;

    m->n += 1;
    m->mean += d / m->n;
    m->squares += d * (x - m->mean);
}

static void merge_moments(moments *m, const moments *more)
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
                add_value(m, x);
            }
            m++;
        }
    }
    return FLEET_OK;
}

static void note_number(void *all, int which, double x)
{
    add_value((moments *)all + which, x);
}

/* The first slot's values become the piece's moments. */
fleet_status fl_parse_statistics(const fl_parser *p, fl_scratch *scratch,
                                 fl_batch_buffer *buffer)
{
    const size_t n = (size_t)p->layout.n_column;
    fl_slot_data *out = &buffer->batch.slot[0];

    buffer->batch.rows = (int64_t)buffer->lines.n;
    FL_TRY(fl_grow(&out->values, &buffer->capacity[0], n, sizeof(moments)));
    memset(out->values, 0, n * sizeof(moments));
    if (p->spec->format == FLEET_PARQUET)
        return fl_parquet_note_numbers(p, scratch, buffer, note_number,
                                       out->values);
    for (size_t i = 0; i < buffer->lines.n; i++) {
        const fl_line *line = &buffer->lines.line[i];

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
            merge_moments(&sum[i], (const moments *)piece->slot[0].values + i);
        fl_stream_release(stream, piece);
    }
    fl_stream_close(stream);
    return status == FLEET_EEND ? FLEET_OK : status;
}

static fleet_status finish_statistics(fl_statistics *s, const moments *sum)
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

fleet_status fl_stream_statistics(const fl_stream_spec *spec,
                                  fl_statistics *statistics)
{
    fl_stream_spec all = *spec;
    moments *sum;
    fleet_status status;
    int n;

    *statistics = (fl_statistics){0};
    FL_TRY(fl_spec_check(spec));
    n = fl_count_standardized(spec->slots, spec->n_slot);
    if (n == 0)
        return FLEET_OK;
    all.batch_size = PIECE;
    all.shuffle = 0;
    all.share_index = 0;
    all.share_count = 1;
    all.statistics = NULL;
    fl_sampling_none(&all);
    all.n_slot = fl_count_read_slots(spec->slots, spec->n_slot);
    all.cache = NULL;
    FL_TRY(FL_NEW(&sum, (size_t)n * sizeof *sum));
    status = merge_pieces(&all, sum, n);
    if (status == FLEET_OK)
        status = fl_statistics_create(statistics, n);
    if (status == FLEET_OK)
        status = finish_statistics(statistics, sum);
    fl_free(sum);
    return status;
}
