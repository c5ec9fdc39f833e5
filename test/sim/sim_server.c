/* sim_server.c - server processes of the simulator: their lanes, which are
 * called as server.c calls them. */
#define SUITE sim_kit
#include "sim_internal.h"
#include "sim_journal.h"
#include "sim_save.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fleet/save_part.h"
#include "runtime/store/snapshot.h"
#include "runtime/store/store_hash.h"
#include "runtime/store/table.h"

enum { MOST_COPY_MS = 300 };

/* --- what lanes do -------------------------------------------------------- */

/* A worker's address is one connection: of a process, and of its handshake or
 * of what comes after that. */
static fl_peer peer_of(const sim_event *e)
{
    fl_peer peer = {.size = 6};

    peer.id[0] = (uint8_t)(e->worker < 0 ? 255 : e->worker);
    peer.id[1] = e->joins;
    memcpy(&peer.id[2], &e->life, sizeof e->life);
    return peer;
}

/* Has the run such a process? */
static bool has_process(const sim *s, int worker)
{
    return worker < s->n_process ||
           (worker == SIM_SUBSCRIBER && s->subscriber) ||
           (worker >= SIM_MOST_PROCESS && worker < SIM_MOST_SENDER);
}

/* A process that is to die with this message, or has died, sends nothing. */
static void send_from(sim *s, int server, sim_event e, fl_packet *p)
{
    if (s->server[server].dying)
        return;
    sim_fault_message(s, e.worker, e.server, p);
    if (!s->server[server].dying)
        sim_carry(s, e, p);
}

static void lane_sends(void *arg, const fl_peer *to, fl_packet *p)
{
    const sim_lane *l = arg;
    sim *s = l->s;
    sim_event e = {.kind = SIM_TO_WORKER,
                   .worker = to->id[0],
                   .joins = to->id[1],
                   .server = l->server,
                   .lane = l->number,
                   .stay = l->stay};

    memcpy(&e.life, &to->id[2], sizeof e.life);
    if (has_process(s, e.worker))
        send_from(s, l->server, e, p);
}

/* The lane that it follows: the other copy. */
static void lane_asks(void *arg, fl_packet *p)
{
    const sim_lane *l = arg;
    sim *s = l->s;
    int other = sim_other_copy(s, l->number);

    send_from(s, l->server,
              (sim_event){.kind = SIM_TO_LANE,
                          .worker = SIM_MOST_PROCESS + l->number % s->n_lane,
                          .server = s->lane[other].server,
                          .lane = other,
                          .stay = l->follows,
                          .life = sim_life_of(l)},
              p);
}

/* As server_copy.c does it, on a thread. */
static fleet_status lane_copies(void *arg, fl_lane_copy *c)
{
    sim_lane *l = arg;
    sim *s = l->s;

    l->copy = c;
    sim_post(s, (sim_event){.at_ms = s->now_ms + 1 +
                                     (int64_t)sim_random(s, MOST_COPY_MS),
                            .kind = SIM_LANE_COPIES,
                            .server = l->server,
                            .lane = l->number,
                            .life = sim_life_of(l)});
    return FLEET_OK;
}

static void copy_is_written(const sim *s, sim_lane *l)
{
    fl_lane_copy *c = l->copy;

    l->copy = NULL;
    fl_lane_write_copy(l->core, c);
    fl_lane_copy_written(l->core, c, s->now_ms);
}

/* How far the server's lanes are. */
static bool lane_loads(void *arg, uint64_t *bytes, uint64_t *total)
{
    const sim_lane *l = arg;
    bool any = false;

    *bytes = 0;
    *total = (uint64_t)(l->s->o.load_parts * l->s->o.n_lane);
    for (int i = 0; i < l->s->n_lane; i++) {
        const sim_lane *other = &l->s->lane[i];

        if (other->server != l->server)
            continue;
        any = any || other->loads || other->replays;
        *bytes += (uint64_t)other->loaded;
    }
    return any;
}

static uint64_t lane_progress(void *arg)
{
    return (uint64_t)((const sim_lane *)arg)->loaded;
}

static void load_part(sim *s, const sim_lane *l)
{
    if (s->o.stuck == l->server + 1 && l->loaded > 0)
        return;
    sim_post(
        s, (sim_event){.at_ms = s->now_ms + 1 +
                                (int64_t)sim_random(s, (uint64_t)s->o.load_ms),
                       .kind = SIM_COMMAND_ENDS,
                       .server = l->server,
                       .lane = l->number,
                       .life = s->server[l->server].life});
}

static void begin_load(sim *s, sim_lane *l)
{
    l->loaded = 0;
    l->loads = s->o.load != NULL;
    if (!l->loads)
        return;
    l->command = (fl_lane_command){.kind = FL_COMMAND_LOAD,
                                   .text = (char *)(uintptr_t)s->o.load};
    fl_lane_begin_load(l->core, s->now_ms);
    load_part(s, l);
}

/* As server.c does it. A text that is not JSON is of no disk. */
static fleet_status lane_begins(void *arg, const fl_lane_command *command)
{
    sim_lane *l = arg;

    if (command->beside_training && *command->text == '{')
        FL_TRY(fl_snapshot_begin(l->store, fl_lane_version(l->core),
                                 command->done, l->s->o.n_worker));
    l->command = *command;
    sim_post(l->s,
             (sim_event){.at_ms = l->s->now_ms + (int64_t)sim_random(l->s, 400),
                         .kind = SIM_COMMAND_ENDS,
                         .server = l->server,
                         .lane = l->number,
                         .life = sim_life_of(l)});
    return FLEET_OK;
}

static void hash_ends(sim *s, sim_lane *l)
{
    const fl_rows *rows = l->layout.table[l->command.table];
    uint64_t sum = 0;
    fleet_status status = fl_store_hash_rows(rows, &sum);

    fl_lane_command_done(l->core, status,
                         status == FLEET_OK ? NULL : fleet_last_error(), sum,
                         (uint64_t)rows->methods->count(rows), s->now_ms);
}

/* To a disk, or from one. */
static void disk_ends(sim *s, sim_lane *l)
{
    char *text = NULL, load[400];
    fleet_status status = fl_save_part_of_lane(
        NULL, l->store, &l->own, l->server, l->lane, l->command.kind,
        l->loads ? sim_load_text(l->command.text, load) : l->command.text,
        &text);

    fl_snapshot_end(l->store);
    fl_lane_command_done(l->core, status,
                         status == FLEET_OK ? text : fleet_last_error(), 0, 0,
                         s->now_ms);
    fl_free(text);
    if (l->loads && status == FLEET_OK) {
        l->loads = false;
        s->server[l->server].loaded_ms = s->now_ms;
    }
}

/* A save without a disk says what it saw; the text "full LANE" is for one that
 * is full there. */
static void command_ends(sim *s, sim_lane *l)
{
    char text[100];
    int full;

    snprintf(text, sizeof text, "%lld", (long long)l->store->updates);
    if (l->loads && ++l->loaded < s->o.load_parts)
        load_part(s, l);
    else if (l->command.kind == FL_COMMAND_HASH)
        hash_ends(s, l);
    else if (l->command.kind == FL_COMMAND_LOAD || *l->command.text == '{')
        disk_ends(s, l);
    else if (sscanf(l->command.text, "full %d", &full) == 1 &&
             full == l->number % s->n_lane)
        fl_lane_command_done(l->core, FLEET_EIO, "the disk is full", 0, 0,
                             s->now_ms);
    else
        fl_lane_command_done(l->core, FLEET_OK, text, 0, 0, s->now_ms);
}

/* --- events --------------------------------------------------------------- */

static void to_lane(sim *s, sim_lane *l, const sim_event *e)
{
    fl_peer from = peer_of(e);

    sim_fault_message(s, e->worker, l->server, e->packet);
    if (s->server[l->server].dying)
        return;
    sim_say(s, "receives", e->worker, e->lane, e->packet);
    fl_lane_receive(l->core, &from, e->packet, s->now_ms);
}

/* The lanes of a server end together: the first that fails tells the others;
 * one that has come to its process is a server of its own. */
static void heed_siblings(sim *s, sim_lane *l)
{
    for (int i = 0; i < s->all_lanes; i++) {
        const sim_lane *other = &s->lane[i];
        const fl_error *e;

        if (other->server != l->server || !other->core || other->stay > 0 ||
            l->stay > 0)
            continue;
        e = fl_lane_error(other->core);
        if (e->code != FLEET_OK && other->loads)
            fl_lane_doom(l->core, e->code, e->text);
        else if (e->code != FLEET_OK)
            fl_lane_abort(l->core, e->code, e->text);
    }
}

static void look_again(const sim *s, sim_lane *l)
{
    l->looks = false;
    fl_lane_look_again(l->core, s->now_ms);
}

/* What the lane that it follows has answered. */
static void to_follower(sim *s, const sim_lane *l, const sim_event *e)
{
    sim_arrives(e->packet);
    sim_fault_message(s, e->worker, e->server, e->packet);
    if (!s->server[l->server].dying)
        fl_lane_follow(l->core, e->packet, s->now_ms);
}

static void lane_event(sim *s, sim_lane *l, const sim_event *e)
{
    if (!l->core || fl_lane_state_of(l->core) != FL_LANE_RUNS)
        return; /* its socket is closed */
    if (e->kind == SIM_TO_WORKER)
        to_follower(s, l, e);
    else if (e->kind == SIM_TO_LANE)
        to_lane(s, l, e);
    else if (e->kind == SIM_COMMAND_ENDS)
        command_ends(s, l);
    else if (e->kind == SIM_LANE_LOOKS)
        look_again(s, l);
    else if (e->kind == SIM_LANE_REPLAYS)
        sim_journal_goes_on(s, l);
    else if (e->kind == SIM_LANE_CUTS)
        sim_journal_cut(s, l);
    else if (e->kind == SIM_LANE_COPIES)
        copy_is_written(s, l);
    else {
        heed_siblings(s, l);
        fl_lane_tick(l->core, s->now_ms);
        sim_journal_tick(s, l);
        sim_post(s, (sim_event){.at_ms = s->now_ms + s->o.peer_ms / 10,
                                .kind = SIM_LANE_TICK,
                                .server = l->server,
                                .lane = l->number,
                                .life = e->life});
    }
    if (fl_lane_looks_again(l->core) && !l->looks)
        sim_post(s, (sim_event){.at_ms = s->now_ms + 1,
                                .kind = SIM_LANE_LOOKS,
                                .server = l->server,
                                .lane = l->number,
                                .life = sim_life_of(l)});
    l->looks = l->looks || fl_lane_looks_again(l->core);
    if (fl_lane_state_of(l->core) == FL_LANE_RUNS)
        return;
    s->server[l->server].ended_ms = l->ended_ms = s->now_ms;
    sim_say(s, fl_lane_error(l->core)->text, SIM_NOBODY, l->number, NULL);
}

void sim_server_event(sim *s, sim_event *e)
{
    const sim_server *server = &s->server[sim_server_of(s, e)];
    int follower = sim_follower_of(s, e);
    sim_lane *l = &s->lane[follower >= 0 ? follower : e->lane];

    if (e->kind == SIM_SERVER_COMES)
        sim_server_comes(s, e->server);
    else if (server->alive &&
             (e->kind == SIM_TO_LANE ? e->stay == l->stay
                                     : e->life == sim_life_of(l)))
        lane_event(s, l, e);
}

bool sim_server_is_over(const sim *s, int server)
{
    if (!s->server[server].alive) /* one with a journal comes back */
        return s->server[server].life > 0 && !s->o.journal;
    for (int i = 0; i < s->all_lanes; i++)
        if (s->lane[i].server == server && s->lane[i].core &&
            fl_lane_state_of(s->lane[i].core) == FL_LANE_RUNS)
            return false;
    return true;
}

/* --- life ----------------------------------------------------------------- */

/* A worker that joins gets an incarnation that has one before it, so that
 * messages of an earlier process can be made up. */
void sim_lane_open(sim *s, sim_lane *l)
{
    sim_server *server = &s->server[l->server];
    int index = l->server % s->o.n_server;
    bool again = s->o.replicas && server->life > 1;
    bool comes = l->stay > 0, follows = comes || again || index != l->server;
    const fl_lane_options options = {
        .layout = &l->layout,
        .map = &s->map,
        .identity = comes ? &l->identity : &server->identity,
        .server = index,
        .lane = l->lane,
        .n_lane = s->o.n_lane,
        .replica = follows         ? FL_REPLICA_FOLLOWS
                   : s->o.replicas ? FL_REPLICA_LEADS
                                   : FL_NO_REPLICA,
        .n_stream = s->o.n_worker,
        .sync = s->o.sync,
        .bounds_staleness = s->o.bounds_staleness,
        .max_staleness = (uint64_t)s->o.max_staleness,
        .live_hash = (int)(s->o.seed % 4),
        .job = "sim",
        .mode = s->o.sync ? "sync" : "async",
        .program = s->o.model->signature,
        .address = server->offered,
        .connect_ms = s->o.connect_ms,
        .restart_ms = s->o.restart_ms,
        .peer_ms = s->o.peer_ms,
        .step_ms = s->o.step_ms,
        .most_open = s->o.most_open,
        .most_parked = s->o.most_parked,
        .most_unread = s->o.most_unread,
        .most_changes = s->o.most_told,
        .process = sim_life_of(l),
        .comes_again = comes,
        .most_copy = SIZE_MAX,
        .journal = sim_journal_sink(l),
        .pool = s->pool};
    const fl_lane_host host = {.arg = l,
                               .send = lane_sends,
                               .begin = lane_begins,
                               .progress = lane_progress,
                               .loading = lane_loads,
                               .ask = lane_asks,
                               .copy = lane_copies};

    if (comes) {
        sim_move_address(l, server->address[l->lane]);
        server->offered[l->lane] = server->address[l->lane];
    }
    l->own = fl_bucket_map_own(&s->map, index, l->lane);
    l->looks = false;
    l->store = sim_store_of(
        s->o.model, s->o.make_rows ? s->o.make_rows : fl_table_make,
        (fl_block_filter){fl_lane_keeps_block, &l->own}, s->o.geo_every > 0);
    CHECK_OK(fl_partition_make(&l->layout, l->store, s->o.n_server));
    CHECK_OK(fl_lane_create(&l->core, &options, &host, s->now_ms));
    for (int i = 0; s->o.geo_every > 0 && i < l->layout.n_table; i++) {
        l->core->aggregate.changes[i].most = s->o.most_change;
        l->core->aggregate.changes[i].page_bytes = s->o.changed_bytes;
    }
    for (int i = 0; i < s->o.n_worker; i++)
        l->core->stream[i].incarnation = SIM_INCARNATION - 1;
    begin_load(s, l);
    sim_journal_begin(s, l);
    if (follows)
        fl_lane_begin_follow(l->core, NULL, s->now_ms);
    sim_post(
        s, (sim_event){.at_ms = s->now_ms + (int64_t)sim_random(
                                                s, (uint64_t)s->o.peer_ms / 10),
                       .kind = SIM_LANE_TICK,
                       .server = l->server,
                       .lane = l->number,
                       .life = sim_life_of(l)});
}

void sim_server_comes(sim *s, int server)
{
    sim_server *v = &s->server[server];
    uint32_t life = v->life + 1;

    *v = (sim_server){.life = life, .alive = true, .came_ms = s->now_ms};
    if (s->o.journal) /* it comes back with everything: it is the same */
        life = 1;
    if (server < s->o.n_server && !(s->o.replicas && life > 1))
        /* a follower has it of the one that leads */
        v->identity.nonce = SIM_NONCE + 100 * life + (uint32_t)server;
    v->identity.run =
        server == 0 && !(s->o.replicas && life > 1) ? SIM_RUN + life - 1 : 0;
    for (int i = 0; i < s->o.n_lane; i++) {
        snprintf(v->address[i], sizeof v->address[i],
                 "{\"inproc\":\"inproc://sim/%d/%d\"}", server, i);
        v->offered[i] = v->address[i];
    }
    for (int i = 0; i < (s->o.moves > 0 ? s->n_lane : s->all_lanes); i++)
        if (s->lane[i].server == server)
            sim_lane_open(s, &s->lane[i]);
    sim_say(s, "a server comes", SIM_NOBODY, server * s->o.n_lane, NULL);
}

void sim_lane_close(sim_lane *l)
{
    fl_lane_destroy(l->core);
    fl_snapshot_end(l->store);
    fl_partition_done(&l->layout);
    fl_store_destroy(l->store);
    sim_journal_dies(l);
    l->core = NULL;
    l->store = NULL;
}

void sim_server_dies(sim *s, int server)
{
    for (size_t i = 0; i < s->n_event; i++) /* its accounts end with it */
        if (s->event[i].kind == SIM_TO_WORKER && s->event[i].server == server)
            sim_arrives(s->event[i].packet);
    for (int i = 0; i < s->all_lanes; i++) {
        sim_lane *l = &s->lane[i];

        if (l->server == server && l->core)
            sim_lane_close(l);
    }
    s->server[server].alive = false;
}
