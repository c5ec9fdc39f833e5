/* lane_journal.c - what a lane is about to apply is written into its journal:
 * records are made of what lies in memory, put and committed. */
#include <string.h>

#include "base/memory.h"
#include "ps/server/lane_replica.h"

/* --- records -------------------------------------------------------------- */

void fl_record_parts_done(fl_record_parts *p)
{
    fl_free(p->parts.at);
    fl_free(p->stream);
    fl_free(p->section);
    fl_free(p->key);
    fl_free(p->hash);
    *p = (fl_record_parts){0};
}

/* Its disk is not the worker's. */
fleet_status fl_lane_name_server(const fl_ps_lane *l, fleet_status status)
{
    return status == FLEET_OK ? status
                              : fl_fail_in(status, "server %d, lane %d",
                                           l->o.server, l->o.lane);
}

static fleet_status put_record(fl_ps_lane *l, fl_lane_record_kind kind,
                               const fl_journal_part *part, size_t n)
{
    return fl_lane_name_server(
        l, l->o.journal.put(l->o.journal.arg, (uint16_t)kind, part, n));
}

fleet_status fl_lane_commit(fl_ps_lane *l)
{
    return fl_lane_name_server(l, l->o.journal.commit(l->o.journal.arg));
}

static fleet_status write_record(fl_ps_lane *l, fl_lane_record_kind kind,
                                 const fl_journal_part *part, size_t n)
{
    FL_TRY(put_record(l, kind, part, n));
    return fl_lane_commit(l);
}

fleet_status fl_lane_record_run(fl_ps_lane *l, uint32_t run)
{
    const fl_run_record r = {.run = run};

    if (!l->o.journal.put)
        return FLEET_OK;
    return write_record(l, FL_LANE_RECORD_RUN, &(fl_journal_part){&r, sizeof r},
                        1);
}

fleet_status fl_lane_record_place(fl_ps_lane *l, uint32_t stream,
                                  uint32_t incarnation, uint64_t nonce,
                                  const char *who, bool no_log)
{
    fl_place_record r = {.stream = stream,
                         .incarnation = incarnation,
                         .nonce = nonce,
                         .no_log = no_log};

    if (!l->o.journal.put)
        return FLEET_OK;
    memcpy(r.who, who, strnlen(who, sizeof r.who - 1));
    return write_record(l, FL_LANE_RECORD_PLACE,
                        &(fl_journal_part){&r, sizeof r}, 1);
}

/* --- streams -------------------------------------------------------------- */

static fleet_status begin_streams(fl_ps_lane *l)
{
    fl_record_parts *p = &l->record;

    p->parts.n = 0;
    p->update.n_stream = 0;
    return fl_grow(&p->stream, &p->stream_capacity, (size_t)l->o.n_stream,
                   sizeof *p->stream);
}

/* The step that it has brought, or which is over. */
static void add_stream(fl_ps_lane *l, uint32_t stream)
{
    const fl_stream_state *s = &l->stream[stream];
    fl_record_parts *p = &l->record;

    p->stream[p->update.n_stream++] = (fl_stream_record){
        .stream = stream, .n_batch = s->n_batch, .step = s->done + 1};
}

static fleet_status list_streams(fl_ps_lane *l)
{
    fl_record_parts *p = &l->record;

    return fl_journal_add(&p->parts, p->stream,
                          p->update.n_stream * sizeof *p->stream);
}

static fleet_status write_streams(fl_ps_lane *l, fl_lane_record_kind kind)
{
    FL_TRY(list_streams(l));
    return write_record(l, kind, l->record.parts.at, l->record.parts.n);
}

fleet_status fl_lane_record_leave(fl_ps_lane *l, uint32_t stream)
{
    if (!l->o.journal.put)
        return FLEET_OK;
    FL_TRY(begin_streams(l));
    add_stream(l, stream);
    FL_TRY(write_streams(l, FL_LANE_RECORD_LEAVE));
    fl_replica_note_left(l, stream);
    return FLEET_OK;
}

/* Without it a lane that comes back would wait for a process that has ended. */
fleet_status fl_lane_record_bye(fl_ps_lane *l, uint32_t stream)
{
    const fl_bye_record r = {.stream = stream};

    if (!l->o.journal.put || l->o.restart_ms <= 0)
        return FLEET_OK;
    return write_record(l, FL_LANE_RECORD_BYE, &(fl_journal_part){&r, sizeof r},
                        1);
}

fleet_status fl_lane_record_pass(fl_ps_lane *l)
{
    if (!l->o.journal.put)
        return FLEET_OK;
    FL_TRY(begin_streams(l));
    for (uint32_t i = 0; i < (uint32_t)l->o.n_stream; i++)
        if (l->stream[i].ended && !l->stream[i].left)
            add_stream(l, i);
    return write_streams(l, FL_LANE_RECORD_PASS);
}

/* --- updates -------------------------------------------------------------- */

/* A step as it came. */
static fleet_status list_pieces(fl_record_parts *p, const fl_piece *pieces)
{
    size_t n = 0;

    for (const fl_piece *one = pieces; one; one = one->next)
        n += one->msg.head.n_section;
    FL_TRY(fl_grow(&p->section, &p->section_capacity, n, sizeof *p->section));
    for (const fl_piece *one = pieces; one; one = one->next)
        for (int i = 0; i < one->msg.head.n_section; i++) {
            const fl_section *s = &one->msg.section[i];
            const fl_frame *column = one->msg.column[i];
            size_t floats = column[FL_AT_VALUES].size / sizeof(float);

            if (s->op == FL_SECTION_CLIP || s->n_key == 0)
                continue;
            FL_TRY(fl_record_section(p, (fl_section_op)s->op, s->table,
                                     column[FL_AT_KEYS].data, s->n_key,
                                     floats));
            FL_TRY(fl_journal_add(&p->parts, column[FL_AT_VALUES].data,
                                  floats * sizeof(float)));
            FL_TRY(fl_record_pad(p, floats));
        }
    return FLEET_OK;
}

/* Of the lane as it is: of several steps that are committed together the first
 * one's. */
static fleet_status list_hashes(fl_ps_lane *l)
{
    fl_record_parts *p = &l->record;
    size_t most = fl_aggregate_live_most(&l->aggregate);

    if (most == 0)
        return FLEET_OK;
    FL_TRY(fl_grow(&p->hash, &p->hash_capacity, most, sizeof *p->hash));
    p->update.n_hash =
        (uint32_t)fl_aggregate_live_hashes(&l->aggregate, p->hash);
    return fl_journal_add(&p->parts, p->hash,
                          p->update.n_hash * sizeof *p->hash);
}

fleet_status fl_lane_record_update(fl_ps_lane *l, int64_t version, int only,
                                   uint32_t n_batch, float clip,
                                   const fl_update_settings *settings)
{
    fl_record_parts *p = &l->record;
    uint32_t first = only < 0 ? 0 : (uint32_t)only;
    uint32_t end = only < 0 ? (uint32_t)l->o.n_stream : first + 1;

    FL_TRY(begin_streams(l));
    p->update = (fl_update_record){.version = (uint64_t)version,
                                   .n_batch = n_batch,
                                   .clip = clip,
                                   .settings = *settings};
    p->n_section = 0;
    for (uint32_t i = first; i < end; i++)
        if (fl_contributes(&l->stream[i])) {
            add_stream(l, i);
            p->update.stops |= (l->stream[i].flags & FL_MSG_STOP) != 0;
        }
    FL_TRY(fl_journal_add(&p->parts, &p->update, sizeof p->update));
    FL_TRY(list_streams(l));
    if (only < 0)
        FL_TRY(fl_aggregate_record(&l->aggregate, p));
    else
        FL_TRY(list_pieces(p, l->stream[only].open));
    p->update.n_section = (uint32_t)p->n_section;
    if (version == l->version)
        FL_TRY(list_hashes(l));
    return put_record(l, FL_LANE_RECORD_UPDATE, p->parts.at, p->parts.n);
}

/* --- sums over workers, commands ------------------------------------------ */

fleet_status fl_lane_record_reduced(fl_ps_lane *l)
{
    fl_record_parts *p = &l->record;
    fl_reduced_record r = {.how = l->reduced_how,
                           .first = l->reduced_first,
                           .n = (uint32_t)l->n_reduced};

    if (!l->o.journal.put)
        return FLEET_OK;
    FL_TRY(begin_streams(l));
    for (uint32_t i = 0; i < (uint32_t)l->o.n_stream; i++)
        if (l->stream[i].reducing)
            p->stream[p->update.n_stream++] = (fl_stream_record){
                .stream = i, .step = l->stream[i].reduced + 1};
    r.n_stream = p->update.n_stream;
    FL_TRY(fl_journal_add(&p->parts, &r, sizeof r));
    FL_TRY(list_streams(l));
    FL_TRY(fl_journal_add(&p->parts, l->reduced,
                          (size_t)l->n_reduced * sizeof *l->reduced));
    return write_record(l, FL_LANE_RECORD_REDUCED, p->parts.at, p->parts.n);
}

fleet_status fl_lane_record_lease(fl_ps_lane *l, uint32_t stream,
                                  const fl_lease_pass *pass, uint64_t sums,
                                  uint64_t number, uint64_t lease)
{
    const fl_lease_record r = {
        .pass = *pass, .sums = sums, .first = number, .stream = stream, .n = 1};

    if (!l->o.journal.put)
        return FLEET_OK;
    return write_record(
        l, FL_LANE_RECORD_LEASE,
        (fl_journal_part[]){{&r, sizeof r}, {&lease, sizeof lease}}, 2);
}

fleet_status fl_lane_record_command(fl_ps_lane *l, fleet_status status,
                                    const char *answer)
{
    uint32_t stream = l->requester.head.stream;
    const char *request =
        l->command.kind == FL_COMMAND_SAVE ? NULL : l->command.text;
    const fl_command_record r = {
        .step = l->stream[stream].done + 1,
        .stream = stream,
        .kind = (uint32_t)l->command.kind,
        .status = (uint32_t)status,
        .answer_size = answer ? (uint32_t)strlen(answer) : 0,
        .request_size = request ? (uint32_t)strlen(request) : 0,
        .has_answer = answer != NULL};

    if (!l->o.journal.put)
        return FLEET_OK;
    return write_record(l, FL_LANE_RECORD_COMMAND,
                        (fl_journal_part[]){{&r, sizeof r},
                                            {answer, r.answer_size},
                                            {request, r.request_size}},
                        3);
}
