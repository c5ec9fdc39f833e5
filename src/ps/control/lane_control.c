/* lane_control.c - what fleetctl asks a lane: what it keeps, which copy of it
 * this is, how far its workers are. docs/elastic.md. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "ps/control/control.h"
#include "ps/control/lane_move.h"
#include "ps/locality.h"
#include "ps/server/lane_budget.h"
#include "ps/server/lane_copy.h"

/* --- what it is ----------------------------------------------------------- */

/* Of a server that has joined the job, and has none of its own. */
static bool is_no_lane(const fl_ps_lane *l)
{
    return l->o.replica == FL_REPLICA_GONE;
}

static const char *copy_of(const fl_ps_lane *l)
{
    static const char *const name[] = {[FL_NO_REPLICA] = "only",
                                       [FL_REPLICA_LEADS] = "leads",
                                       [FL_REPLICA_FOLLOWS] = "follows",
                                       [FL_REPLICA_ALONE] = "alone",
                                       [FL_REPLICA_GONE] = "gone"};

    return is_no_lane(l) ? "none" : name[fl_lane_replica(l)];
}

/* A copy replays for as long as it follows; then it has all that it began
 * with. */
static bool is_whole_copy(const fl_ps_lane *l)
{
    return fl_replica_follows(l) && l->replica->attached;
}

static const char *state_of(const fl_ps_lane *l)
{
    if (l->error.code != FLEET_OK)
        return "fails";
    if (is_no_lane(l))
        return "takes lanes";
    if (fl_replica_follows(l))
        return !is_whole_copy(l) ? "loads"
               : l->replay_waits ? FL_CONTROL_BUSY
                                 : "serves";
    if (l->replaying)
        return "comes back";
    if (l->loading)
        return "loads";
    return l->busy || l->saving ? FL_CONTROL_BUSY : "serves";
}

/* A lane that has come to another process knows its own alone. */
static const char *address_of(const fl_ps_lane *l, int i)
{
    return l->o.address[i] ? l->o.address[i] : "{}";
}

static fleet_status put_identity(const fl_ps_lane *l, fl_json *json)
{
    char who[96];

    fl_who_text(who);
    FL_TRY(fl_json_put(json, "server", fl_json_int(l->o.server)));
    FL_TRY(fl_json_put(json, "lane", fl_json_int(l->o.lane)));
    FL_TRY(fl_json_put(json, "lanes", fl_json_int(l->o.n_lane)));
    FL_TRY(fl_json_put(json, "process", fl_json_string(who)));
    if (l->o.address)
        FL_TRY(fl_json_put(json, "address",
                           fl_json_string(address_of(l, l->o.lane))));
    FL_TRY(fl_json_put(json, "mode", fl_json_string(l->o.mode)));
    FL_TRY(fl_json_put(json, "copy", fl_json_string(copy_of(l))));
    FL_TRY(fl_json_put(json, "view", fl_json_int(fl_replica_view_of(l))));
    if (l->replica && l->replica->moves)
        FL_TRY(fl_json_put(json, "moves_to", fl_json_int(l->replica->mover)));
    if (l->o.log_goes && l->o.lane == 0)
        FL_TRY(fl_json_put(json, "stays", fl_json_int(1)));
    FL_TRY(fl_json_put(json, "state", fl_json_string(state_of(l))));
    if (l->error.code != FLEET_OK)
        FL_TRY(fl_json_put(json, "error", fl_json_string(l->error.text)));
    return FLEET_OK;
}

/* Floats of dense parameters, without their states. */
static int64_t count_dense(const fl_ps_lane *l)
{
    const fl_partition *layout = l->o.layout;
    fl_bucket_set own = fl_bucket_map_own(l->o.map, l->o.server, l->o.lane);
    int64_t n = 0;

    for (int i = 0; i < layout->n_param; i++) {
        const fl_param *p = layout->param[i];

        for (int64_t b = 0; b < fl_blocks_of(p); b++)
            if (fl_lane_keeps_block(layout->store, &own, p, b))
                n += fl_block_size(p, b);
    }
    return n;
}

/* While a command has the store nothing of it is looked at. */
static fleet_status put_tables(const fl_ps_lane *l, fl_json *json)
{
    int64_t rows = 0, bytes = 0;
    fl_json *list;

    FL_TRY(fl_json_put_array(json, "tables", &list));
    for (int i = 0; i < l->o.layout->n_table; i++) {
        const fl_rows *r = l->o.layout->table[i];
        fl_json *one = fl_json_object();
        fl_rows_stat stat;

        FL_TRY(fl_json_append(list, one));
        FL_TRY(r->methods->stat(r, &stat));
        FL_TRY(fl_json_put(one, "name", fl_json_string(r->name)));
        FL_TRY(fl_json_put(one, "rows", fl_json_int(stat.rows)));
        rows += stat.rows;
        bytes += (int64_t)(stat.row_bytes + stat.index_bytes);
    }
    FL_TRY(fl_json_put(json, "rows", fl_json_int(rows)));
    FL_TRY(fl_json_put(json, "bytes", fl_json_int(bytes)));
    return fl_json_put(json, "dense", fl_json_int(count_dense(l)));
}

static const char *state_of_stream(const fl_ps_lane *l, int i)
{
    const fl_stream_state *s = &l->stream[i];

    if (s->left)
        return "has left";
    if (s->absent || !s->known)
        return s->known ? "is silent" : "has not come";
    return s->ended ? "has ended the pass" : "trains";
}

/* As the worker calls itself, which may be any bytes. */
static fleet_status put_who(const fl_stream_state *s, fl_json *json)
{
    char who[4 * sizeof s->who];

    snprintf(who, sizeof who, "%s", s->who);
    fl_text_escape(who, sizeof who);
    return fl_json_put(json, "process", fl_json_string(who));
}

static fleet_status put_workers(const fl_ps_lane *l, fl_json *json)
{
    fl_json *list;

    FL_TRY(fl_json_put_array(json, "workers", &list));
    for (int i = 0; i < l->o.n_stream; i++) {
        const fl_stream_state *s = &l->stream[i];
        fl_json *one = fl_json_object();

        FL_TRY(fl_json_append(list, one));
        FL_TRY(fl_json_put(one, "worker", fl_json_int(i)));
        FL_TRY(
            fl_json_put(one, "state", fl_json_string(state_of_stream(l, i))));
        FL_TRY(fl_json_put(one, "step", fl_json_int((int64_t)s->done)));
        if (*s->who)
            FL_TRY(put_who(s, one));
        if (s->known && !fl_replica_follows(l))
            FL_TRY(fl_json_put(one, "silent_ms",
                               fl_json_int(l->now_ms - s->heard_ms)));
    }
    return FLEET_OK;
}

/* What servers of a job must have alike. */
static fleet_status put_program(const fl_ps_lane *l, fl_json *json)
{
    uint64_t hash =
        fl_hash(l->o.program, strlen(l->o.program), (uint64_t)l->o.n_stream);
    char text[20];

    snprintf(text, sizeof text, "%016" PRIx64,
             fl_hash(l->o.mode, strlen(l->o.mode), hash));
    return fl_json_put(json, "program", fl_json_string(text));
}

static fleet_status put_joined(const fl_ps_lane *l, fl_json *json)
{
    char address[FL_LANE_TEXT];
    fl_json *list, *one;

    if (!l->host.joined || l->o.lane > 0)
        return FLEET_OK;
    FL_TRY(fl_json_put_array(json, "joined", &list));
    for (int i = l->o.layout->n_server; l->host.joined(l->host.arg, i, address);
         i++) {
        if (!*address)
            continue;
        one = fl_json_object();
        FL_TRY(fl_json_append(list, one));
        FL_TRY(fl_json_put(one, "server", fl_json_int(i)));
        FL_TRY(fl_json_put(one, "address", fl_json_string(address)));
    }
    return FLEET_OK;
}

static fleet_status describe_lane(const fl_ps_lane *l, fl_json *json)
{
    fl_bucket_set own = fl_bucket_map_own(l->o.map, l->o.server, l->o.lane);

    FL_TRY(put_identity(l, json));
    FL_TRY(put_program(l, json));
    FL_TRY(put_joined(l, json));
    FL_TRY(
        fl_json_put(json, "buckets", fl_json_int(fl_bucket_set_count(&own))));
    FL_TRY(fl_json_put(json, "version", fl_json_int(l->version)));
    if ((!l->busy || is_whole_copy(l)) && !l->replay_waits)
        FL_TRY(put_tables(l, json));
    return put_workers(l, json);
}

/* --- answers -------------------------------------------------------------- */

/* It says nothing that a follower has to have before: it does not wait. */
static void answer(fl_ps_lane *l, const fl_peer *from, const char *text)
{
    char guest[FL_LANE_TEXT];
    fl_msg_writer w;
    fl_packet *p;

    fl_lane_begin_answer(l, &w, &l->msg.head, FL_ANSWER_OK, FL_NOBODY);
    w.head.flags |= FL_MSG_CRC_ALL;
    fl_msg_text(&w, FL_SECTION_TEXT, text);
    for (int i = 0; l->o.address && i < l->o.n_lane + l->o.n_also; i++)
        fl_msg_text(&w, FL_SECTION_HELLO, address_of(l, i));
    for (int i = 0; l->host.guest && l->host.guest(l->host.arg, i, guest); i++)
        fl_msg_text(&w, FL_SECTION_HELLO, guest);
    if (fl_msg_end(&w, true, &p) == FLEET_OK) /* else it is asked again */
        fl_lane_send(l, from, FL_CONTROL_STREAM, p);
}

static void answer_status(fl_ps_lane *l, const fl_peer *from)
{
    fl_json *json = fl_json_object();
    char *text =
        describe_lane(l, json) == FLEET_OK ? fl_json_print(json, false) : NULL;

    if (text)
        answer(l, from, text);
    fl_free(text);
    fl_json_free(json);
}

/* What behind it is; NULL: that is not the word. */
static const char *behind(const char *words, const char *word)
{
    size_t n = strlen(word);

    return strncmp(words, word, n) == 0 ? words + n : NULL;
}

static fleet_status give_lane(fl_ps_lane *l, const char *to)
{
    char *end;
    long server = strtol(to, &end, 10);

    if (end == to || (*end && *end != ' ') || server < 0 || server > INT32_MAX)
        return fl_fail(FLEET_EINVAL,
                       "expected a server's number, got \"%.40s\"", to);
    return *end ? fl_lane_move_to_joined(l, (int)server)
                : fl_lane_move(l, (int)server);
}

static fleet_status take_lane(fl_ps_lane *l, const char *what)
{
    if (!l->host.take || l->o.lane > 0)
        return fl_fail(FLEET_EUNSUPPORTED, "it takes no lanes");
    if (l->o.no_move)
        return fl_fail(FLEET_EUNSUPPORTED, "it takes no lanes: %s",
                       l->o.no_move);
    return l->host.take(l->host.arg, what);
}

static fleet_status do_command(fl_ps_lane *l, const char *words)
{
    const char *to = behind(words, FL_CONTROL_GIVE);
    const char *what = behind(words, FL_CONTROL_TAKE);
    const char *joined = behind(words, FL_CONTROL_KNOW);

    if (to)
        return give_lane(l, to);
    if (what)
        return take_lane(l, what);
    if (joined && l->host.know && l->o.lane == 0)
        return l->host.know(l->host.arg, joined);
    return fl_fail(FLEET_EINVAL,
                   "fleetctl wants what this server does not know: \"%.40s\"",
                   words);
}

void fl_lane_control(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    char *words = fl_msg_get_text(&l->msg, FL_SECTION_TEXT);

    (void)p;
    if (!words)
        return; /* it is asked again */
    if (strcmp(words, FL_CONTROL_STATUS) == 0)
        answer_status(l, from);
    else if (do_command(l, words) == FLEET_OK)
        answer(l, from, "");
    else
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, fl_last_code(),
                       "server %d, lane %d: %s", l->o.server, l->o.lane,
                       fleet_last_error());
    fl_free(words);
}
