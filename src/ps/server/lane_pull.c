/* lane_pull.c - reads: rows and blocks of a version, sums over tables. */
#include "ps/server/lane_internal.h"

static void answer_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    fl_row_cache *cache = l->stream[l->msg.head.stream].row_cache;
    fl_msg_writer w;

    fl_lane_begin_answer(l, &w, &l->msg.head, FL_ANSWER_OK, FL_NOBODY);
    for (int i = 0; i < l->msg.head.n_section; i++) {
        if (fl_aggregate_read(&l->aggregate, p, &l->msg, i, &w, cache) !=
            FLEET_OK)
            break; /* the writer remembers */
        w.section[w.n_section - 1].version = (uint64_t)l->version;
    }
    fl_lane_end_answer(l, &w, from);
}

static void park_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    fl_parked **at = &l->stream[l->msg.head.stream].pulls;

    for (; *at; at = &(*at)->next)
        if ((*at)->head.request == l->msg.head.request) {
            (*at)->from = *from;
            return;
        }
    *at = fl_lane_park(l, from, p);
    l->n_pull += *at != NULL;
    if (*at &&
        fl_aggregate_find(&l->aggregate, p, &l->msg,
                          l->stream[l->msg.head.stream].row_cache) != FLEET_OK)
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
}

void fl_lane_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    /* in sync a pull names the version it is about; 0 is whatever there is */
    uint64_t version =
        l->o.sync && l->msg.head.n_section > 0 ? l->msg.section[0].version : 0;

    if (fl_aggregate_check(&l->aggregate, &l->msg) != FLEET_OK)
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a pull of worker %u: %s", l->msg.head.stream,
                       fleet_last_error());
    else if (version > (uint64_t)l->version)
        park_pull(l, from, p);
    else if (version && version < (uint64_t)l->version)
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a pull of worker %u is of version %llu, but this is "
                       "%lld, after a load: all workers must make the same "
                       "calls in the same order",
                       l->msg.head.stream, (unsigned long long)version,
                       (long long)l->version);
    else
        answer_pull(l, from, p);
}

/* A parked pull, decoded: does it want more than weights? */
static bool wants_rows(const fl_msg *msg)
{
    for (int i = 0; i < msg->head.n_section; i++)
        if (msg->section[i].op != FL_SECTION_DENSE)
            return true;
    return false;
}

static void serve_stream(fl_ps_lane *l, fl_stream_state *s, bool dense_alone)
{
    fl_parked **at = &s->pulls;

    while (!l->busy && l->state == FL_LANE_RUNS && *at) {
        fl_parked *one = *at;

        if (one->version > (uint64_t)l->version ||
            fl_msg_decode(one->packet, &l->msg) != FLEET_OK ||
            (dense_alone && wants_rows(&l->msg))) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        one->next = NULL;
        l->n_pull--;
        answer_pull(l, &one->from, one->packet);
        fl_parked_free(one);
    }
}

/* Answer parked pulls whose version has come; dense_alone: only pulls that want
 * no rows. */
void fl_lane_serve_parked(fl_ps_lane *l, bool dense_alone)
{
    if (l->busy || !l->can_serve)
        return;
    for (int i = 0; i < l->o.n_stream && l->n_pull > 0; i++)
        serve_stream(l, &l->stream[i], dense_alone);
    l->can_serve = dense_alone;
}

void fl_lane_query(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_section *s = &l->msg.section[0];

    if (l->msg.head.n_section != 1 || s->op != FL_SECTION_HASH ||
        s->table >= (uint32_t)l->o.layout->n_table) {
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "worker %u asks for what there is not",
                       l->msg.head.stream);
        return;
    }
    if (l->saving) {
        fl_lane_park_behind(l, from, p);
        return;
    }
    l->busy = true;
    l->command =
        (fl_lane_command){.kind = FL_COMMAND_HASH, .table = (int)s->table};
    l->requester = (fl_parked){
        .from = *from, .packet = fl_packet_keep(p), .head = l->msg.head};
    if (l->host.begin(l->host.arg, &l->command) != FLEET_OK)
        fl_lane_end_command(l, fl_last_code(), fleet_last_error(),
                            (uint64_t[2]){0});
}
