/* fleet-datagen.c - click logs and histories of any size from a seed, with the
 * best scores that can be reached on them; docs/datagen.md. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"
#include "fleet-datagen/best_score.h"
#include "fleet-datagen/data_config.h"
#include "fleet-datagen/example_record.h"
#include "fleet-datagen/parquet_file.h"
#include "fleet-datagen/text_line.h"

/* The line that was made last, and what its fields lead to. */
typedef struct data_maker {
    const data_options *o;
    hidden_model log_model;
    sequence_model sequence_model;
    hidden_line log;
    sequence_line sequence;
    data_line line;
    best_score score;
    best_places places;
} data_maker;

static void begin_maker(data_maker *m, const data_options *o)
{
    static int64_t counts[2][BEST_BUCKETS];

    m->o = o;
    m->score = (best_score){.negative = counts[0], .positive = counts[1]};
    m->places.k = o->top;
    if (o->history > 0) {
        data_options_sequence(o, &m->sequence_model);
        data_line_of_sequence(&m->sequence_model, &m->sequence, &m->line);
    } else {
        data_options_log(o, &m->log_model);
        data_line_of_log(&m->log_model, &m->log, &m->line);
    }
}

static void make_line(data_maker *m, int64_t i)
{
    const data_options *o = m->o;
    const sequence_line *s = &m->sequence;
    const uint64_t number = (uint64_t)(o->first + i);

    if (o->history == 0) {
        hidden_model_line(&m->log_model, number, &m->log);
        best_score_note(&m->score, m->log.label, m->log.probability);
        return;
    }
    sequence_model_line(&m->sequence_model, number, &m->sequence);
    data_line_measure(&m->line, s);
    if (o->pairs)
        best_places_note(&m->places, s->above, s->ties);
    else
        best_score_note(&m->score, s->label, s->probability);
}

/* --- the file ------------------------------------------------------------- */

static bool file_failed(const char *path)
{
    fprintf(stderr, "fleet-datagen: %s: %s\n", path,
            errno ? strerror(errno) : "cannot be written");
    return false;
}

static char *put_line(const data_maker *m, char *to)
{
    static text_line_put *const put[] = {
        [FLEET_MULTISLOT] = text_line_multislot,
        [FLEET_CSV] = text_line_csv,
        [FLEET_CRITEO] = text_line_criteo,
        [FLEET_SLOT_TEXT] = text_line_slot_text,
        [FLEET_JSON_LINES] = text_line_json,
        [FLEET_TFRECORD] = example_record_put};

    if (m->o->format == FLEET_LIBSVM)
        return text_line_libsvm(&m->log_model, &m->log, to);
    return put[m->o->format](&m->line, to);
}

static bool write_lines(data_maker *m, gzFile to)
{
    static char text[MOST_LINE];

    for (int64_t i = 0; i < m->o->lines; i++) {
        int size;

        make_line(m, i);
        size = (int)(put_line(m, text) - text);
        if (gzwrite(to, text, (unsigned)size) != size)
            return false;
    }
    return true;
}

static gzFile open_file(const char *path)
{
    const char *mode = data_options_is_compressed(path) ? "wb6" : "wbT";

    errno = 0;
    return strcmp(path, "-") == 0 ? gzdopen(dup(STDOUT_FILENO), mode)
                                  : gzopen(path, mode);
}

static bool write_text(data_maker *m)
{
    gzFile to = open_file(m->o->file);
    bool is_written;

    if (!to)
        return file_failed(m->o->file);
    errno = 0;
    is_written = write_lines(m, to);
    if (gzclose(to) != Z_OK || !is_written)
        return file_failed(m->o->file);
    return true;
}

static bool write_parquet(data_maker *m)
{
    parquet_file *to;
    fleet_status status = parquet_file_create(m->o->file, &m->line, &to);

    for (int64_t i = 0; i < m->o->lines && status == FLEET_OK; i++) {
        make_line(m, i);
        status = parquet_file_add(to, &m->line);
    }
    if (status == FLEET_OK)
        status = parquet_file_finish(to);
    if (status != FLEET_OK)
        fprintf(stderr, "fleet-datagen: %s\n", fleet_last_error());
    parquet_file_close(to);
    return status == FLEET_OK;
}

static bool write_config(const data_maker *m)
{
    errno = 0;
    return !m->o->config || data_config_write(m->o, &m->line) ||
           file_failed(m->o->config);
}

/* --- the whole ------------------------------------------------------------ */

static void print_score(FILE *to, const best_score *s)
{
    const bool both = s->positives > 0 && s->positives < s->n;
    char auc[32] = "null";

    if (both)
        snprintf(auc, sizeof auc, "%.6f", best_score_auc(s));
    fprintf(to,
            "{\"lines\":%" PRId64 ",\"positives\":%" PRId64
            ",\"best_auc\":%s,\"best_logloss\":%.6f}\n",
            s->n, s->positives, auc, s->logloss / (double)s->n);
}

static void print_places(FILE *to, const best_places *p)
{
    const double n = (double)p->n;

    fprintf(to,
            "{\"lines\":%" PRId64 ",\"top\":%" PRId64
            ",\"best_recall\":%.6f,\"best_ndcg\":%.6f}\n",
            p->n, p->k, p->recall / n, p->gain / n);
}

static bool print_summary(const data_maker *m)
{
    FILE *to = strcmp(m->o->file, "-") == 0 ? stderr : stdout;

    if (m->o->pairs)
        print_places(to, &m->places);
    else
        print_score(to, &m->score);
    return fflush(to) == 0 || file_failed("standard output");
}

int main(int argc, char **argv)
{
    static data_options o;
    static data_maker m;
    bool help;

    if (!data_options_read(argc, argv, &o, &help)) {
        if (!help)
            return 2;
        return fputs(data_options_usage, stdout) < 0 || fflush(stdout) != 0;
    }
    begin_maker(&m, &o);
    return (o.format == FLEET_PARQUET ? write_parquet(&m) : write_text(&m)) &&
                   write_config(&m) && print_summary(&m)
               ? 0
               : 1;
}
