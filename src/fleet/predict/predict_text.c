/* predict_text.c - fleet_predictor_run_text(): a text is read as a file is, on
 * the caller's thread. */
#include "fleet/predict/scoring.h"

#include <stdatomic.h>

#include "data/bad_lines.h"
#include "data/format/formats.h"
#include "fleet/inference_internal.h"
#include "fleet/predict/predict_text.h"

/* Parsers and their memory, for one call at a time. */
typedef struct fl_text_run {
    struct fl_text_run *next;
    fl_stream_spec spec;
    fl_parser parser;
    fl_blocks blocks;
    fl_scratch *scratch;
    fl_batch_buffer *buffer;
} fl_text_run;

static const char *const name[] = {"text"};

static void destroy_run(fl_text_run *r)
{
    if (!r)
        return;
    fl_batch_buffer_destroy(r->buffer, &r->parser.layout, &r->blocks);
    fl_scratch_destroy(r->scratch);
    fl_parser_done(&r->parser);
    fl_blocks_done(&r->blocks);
    fl_free(r);
}

void fl_text_runs_destroy(fl_text_run *first)
{
    while (first) {
        fl_text_run *next = first->next;

        destroy_run(first);
        first = next;
    }
}

static fleet_status make_run(const fl_scoring *s, fl_text_run **out)
{
    fleet_status status;
    fl_text_run *r;

    FL_TRY(FL_NEW(&r, sizeof *r));
    r->spec = s->spec;
    r->spec.files = name;
    r->spec.n_file = 1;
    fl_blocks_init(&r->blocks);
    status =
        fl_parser_init(&r->parser, &r->spec, fl_format_parse(r->spec.format));
    if (status == FLEET_OK)
        status = fl_scratch_create(&r->scratch, &r->parser);
    if (status == FLEET_OK)
        status = fl_batch_buffer_create(&r->buffer, &r->parser.layout);
    if (status != FLEET_OK)
        destroy_run(r);
    else
        *out = r;
    return status;
}

static fleet_status take_run(fl_scoring *s, fl_text_run **out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->idle;
    if (*out)
        s->idle = (*out)->next;
    pthread_mutex_unlock(&s->lock);
    return *out ? FLEET_OK : make_run(s, out);
}

static void put_run(fl_scoring *s, fl_text_run *r)
{
    fl_lines_clear(&r->buffer->lines, &r->blocks);
    pthread_mutex_lock(&s->lock);
    r->next = s->idle;
    s->idle = r;
    pthread_mutex_unlock(&s->lock);
}

/* --- a text --------------------------------------------------------------- */

static fleet_status read_lines(fl_text_run *r)
{
    static const atomic_bool never;
    const fl_reader_env env = {&r->parser, &r->blocks, -1, &never};
    fleet_status status;
    fl_reader *reader;
    int64_t got;

    FL_TRY(fl_format_open(r->spec.format, &reader, &env));
    status = reader->start(reader);
    if (status == FLEET_OK)
        status = reader->read(reader, &r->buffer->lines, INT32_MAX, &got);
    reader->close(reader);
    return status == FLEET_EEND ? FLEET_OK : status;
}

/* Better before anything is written than after a part. */
static fleet_status check_room(const fl_scoring *s, int64_t rows,
                               const size_t *size, int n)
{
    for (int i = 0; i < n; i++)
        if (size[i] / fl_scoring_row_size(s, i) < (size_t)rows)
            return fl_fail(FLEET_ESHAPE,
                           "fleet_predictor_run_text: output %d, \"%s\", is "
                           "%zu bytes for %lld samples, but there is room for "
                           "%zu",
                           i, fleet_predictor_output(s->predictor, i)->name,
                           (size_t)rows * fl_scoring_row_size(s, i),
                           (long long)rows, size[i]);
    return FLEET_OK;
}

static fleet_status score_text(const fl_scoring *s, fl_text_run *r,
                               void *const *out, const size_t *size, int n_out,
                               int64_t *rows)
{
    FL_TRY(read_lines(r));
    if (r->buffer->lines.n == 0)
        return FLEET_OK;
    FL_TRY(check_room(s, (int64_t)r->buffer->lines.n, size, n_out));
    FL_TRY(fl_bad_lines_parse(&r->parser, r->scratch, r->buffer));
    FL_TRY(fl_scoring_run(s, &r->buffer->batch, out, size));
    *rows = r->buffer->batch.rows;
    return FLEET_OK;
}

static fleet_status check_call(const fleet_predictor *p, const char *text,
                               size_t size, void *const *out,
                               const size_t *out_size, int n_out)
{
    static const char call[] = "fleet_predictor_run_text";

    if (!p || (!text && size > 0) || !out || !out_size)
        return fl_fail(FLEET_EINVAL, "%s: NULL argument", call);
    if (n_out != p->n_output)
        return fl_fail(FLEET_EINVAL, "%s: expected %d outputs, got %d", call,
                       p->n_output, n_out);
    if (p->reading.n_slot > 0 && p->reading.format == FLEET_IDX)
        return fl_fail(FLEET_EINVAL,
                       "%s: the model reads idx, which is no "
                       "text: fleet_predict_files()",
                       call);
    return FLEET_OK;
}

fleet_status fleet_predictor_run_text(fleet_predictor *p, const char *text,
                                      size_t size, fleet_label_use label,
                                      void *const *out, const size_t *out_size,
                                      int n_out, int64_t *rows)
{
    int64_t scored = 0;
    fleet_status status;
    fl_scoring *s;
    fl_text_run *r;

    if (rows)
        *rows = 0;
    FL_TRY(check_call(p, text, size, out, out_size, n_out));
    FL_TRY(fl_scoring_of(p, label, "fleet_predictor_run_text", &s));
    FL_TRY(take_run(s, &r));
    r->spec.text = text ? text : "";
    r->spec.text_size = size;
    status = score_text(s, r, out, out_size, n_out, &scored);
    put_run(s, r);
    if (rows)
        *rows = scored;
    return status;
}
