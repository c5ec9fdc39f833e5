/* bad_lines.c - bad lines found, one by one, and counted in their order. */
#include "data/bad_lines.h"

#include <inttypes.h>

#include "base/memory.h"
#include "data/made_slots.h"
#include "data/layout/sampling.h"

static fleet_status parse_lines(const fl_parser *p, fl_scratch *scratch,
                                fl_batch_buffer *buffer)
{
    FL_TRY(p->parse(p, scratch, buffer));
    if (p->layout.n_made > 0)
        FL_TRY(fl_made_slots_fill(p, buffer));
    if (p->spec->bounds)
        FL_TRY(fl_parser_check_bounds(p, buffer));
    return fl_sampling_check(p->spec, &p->layout, buffer);
}

/* The text of this thread's last failure, if it is among the first. */
static fleet_status note_line(fl_batch_buffer *buffer)
{
    const int64_t n = buffer->n_bad++;

    if (n >= FL_MOST_TOLD)
        return FLEET_OK;
    if (!buffer->bad)
        FL_TRY(FL_NEW(&buffer->bad, FL_MOST_TOLD * sizeof *buffer->bad));
    fl_error_take(&buffer->bad[n], FLEET_EFORMAT);
    return FLEET_OK;
}

/* Each line as a batch of its own: the good ones stay, n of them. */
static fleet_status drop_lines(const fl_parser *p, fl_scratch *scratch,
                               fl_batch_buffer *buffer)
{
    const fl_lines all = buffer->lines;
    fleet_status status = FLEET_OK;
    size_t good = 0;

    for (size_t i = 0; i < all.n && status == FLEET_OK; i++) {
        buffer->lines.line = all.line + i;
        buffer->lines.n = 1;
        status = parse_lines(p, scratch, buffer);
        if (status == FLEET_OK)
            all.line[good++] = all.line[i];
        else if (status == FLEET_EFORMAT)
            status = note_line(buffer);
    }
    buffer->lines.line = all.line;
    buffer->lines.n = good;
    return status;
}

static fleet_status parse_in_budget(const fl_parser *p, fl_scratch *scratch,
                                    fl_batch_buffer *buffer)
{
    fleet_status status = parse_lines(p, scratch, buffer);

    buffer->n_bad = 0;
    if (status != FLEET_EFORMAT || p->spec->max_bad_lines == 0)
        return status;
    FL_TRY(drop_lines(p, scratch, buffer));
    return parse_lines(p, scratch, buffer);
}

fleet_status fl_bad_lines_count(fl_bad_lines *all, const fl_stream_spec *spec,
                                const fl_batch_buffer *buffer)
{
    for (int i = 0; i < buffer->n_bad && all->told < FL_MOST_TOLD; i++) {
        fl_log_line(spec->log, FLEET_LOG_WARNING, "a bad line is left out: %s",
                    buffer->bad[i].text);
        all->told++;
    }
    all->n += buffer->n_bad;
    return all->n <= spec->max_bad_lines
               ? FLEET_OK
               : fl_fail(FLEET_EFORMAT,
                         "%" PRId64 " bad lines, of which max_bad_lines lets "
                         "%" PRId64 " be left out: %.800s",
                         all->n, spec->max_bad_lines, buffer->bad[0].text);
}

fleet_status fl_bad_lines_parse(const fl_parser *p, fl_scratch *scratch,
                                fl_batch_buffer *buffer)
{
    FL_TRY(parse_in_budget(p, scratch, buffer));
    if (fl_sampling_drops(p->spec))
        fl_sampling_drop(p->spec, &p->layout, buffer);
    return FLEET_OK;
}

void fl_bad_lines_log(fl_bad_lines *all, const fl_stream_spec *spec)
{
    if (all->n > 0 && !all->ended)
        fl_log_line(spec->log, FLEET_LOG_WARNING,
                    "%" PRId64 " bad lines were left out of this pass "
                    "(max_bad_lines %" PRId64 ")",
                    all->n, spec->max_bad_lines);
    all->ended = true;
}
