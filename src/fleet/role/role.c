/* role.c - a role from fleet_options or the environment, checked. */
#define _GNU_SOURCE
#include "fleet/role/role.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "fleet/role/env.h"
#include "fleet/role/launcher_env.h"

static const char *const servers_variable = "PADDLE_PSERVERS_IP_PORT_LIST";
static const char *const join_variable = "FLEET_JOIN";

/* Paddle's launcher sets it for jobs of ranks alone. */
static const char *const collective_variable = "PADDLE_GLOBAL_SIZE";

/* --- variables ------------------------------------------------------------ */

static fleet_status need(const char *name, const char *expected,
                         const char **text)
{
    return fl_variable_need(name, servers_variable, expected, text);
}

static fleet_status need_number(const char *name, int low, int high, int *out)
{
    char expected[64];
    const char *text;

    snprintf(expected, sizeof expected, "an integer from %d to %d", low, high);
    FL_TRY(need(name, expected, &text));
    return fl_variable_read(name, text, low, high, out);
}

static fleet_status check_number(const char *name, int64_t got, int64_t low,
                                 int64_t high)
{
    if (got >= low && got <= high)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "%s: expected %lld to %lld, got %lld", name,
                   (long long)low, (long long)high, (long long)got);
}

/* --- servers -------------------------------------------------------------- */

/* source: where the list was said. */
static fleet_status take_servers(fl_role *r, const char *source,
                                 const char *list)
{
    FL_TRY(FL_NEW(&r->server, FL_MOST_SERVER * sizeof *r->server));
    r->endpoints = fl_strdup(list);
    if (!r->endpoints)
        return FLEET_ENOMEM;
    return fl_read_endpoints(source, list, "servers", FL_MOST_SERVER, r->server,
                             &r->server_num);
}

/* --- sockets -------------------------------------------------------------- */

/* An inherited socket: of this process alone from now on, not of commands that
 * datasets start. */
static fleet_status take_socket(fl_role *r, const char *source, int fd)
{
    socklen_t size = sizeof(int);
    int listens = 0;

    if (fd <= 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 ||
        !listens)
        return fl_fail(FLEET_EINVAL,
                       "%s is %d: expected the descriptor of a listening "
                       "socket",
                       source, fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    r->listen_fd = fd;
    return FLEET_OK;
}

/* FLEET_LANE_PORTS: "7001,7002", of lanes from 1 on; there may be more. */
static fleet_status read_lane_ports(fl_role *r)
{
    static const char *const name = "FLEET_LANE_PORTS";
    const char *list = fl_variable(name), *at = list;

    for (int i = 1; list && (i < r->lanes || *at); i++) {
        size_t length = strcspn(at, ",");
        int64_t port = 0;

        if (!fl_read_digits(at, length, 65535, &port) || port == 0)
            return fl_fail(FLEET_EINVAL,
                           "%s is \"%.200s\": expected ports from 1 to 65535 "
                           "with commas, one for each lane but the first of %d",
                           name, list, r->lanes);
        if (i < r->lanes)
            r->lane_port[i] = (int)port;
        at += length + (at[length] == ',');
    }
    return FLEET_OK;
}

/* --- keys ---------------------------------------------------------------- */

static fleet_status read_insecure(fl_role *r)
{
    const char *text = fl_variable("FLEET_INSECURE");
    int number = 0;

    if (text)
        FL_TRY(fl_variable_read("FLEET_INSECURE", text, 0, 1, &number));
    r->insecure = number;
    return FLEET_OK;
}

/* The folder, or NULL. given: by options. */
static fleet_status find_keys(const fl_role *r, const char *given,
                              const char **folder)
{
    *folder = given ? given : fl_variable("FLEET_KEYS");
    if (*folder && !**folder)
        *folder = NULL;
    if (!*folder || !r->insecure)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "FLEET_INSECURE is 1, but there are keys in %.500s: "
                   "expected one of the two",
                   *folder);
}

/* --- the environment ------------------------------------------------------ */

static fleet_status check_trainer(const char *name)
{
    const char *role = fl_variable(name);

    if (!role || strcmp(role, "TRAINER") == 0)
        return FLEET_OK;
    return fl_fail(FLEET_ENOENT,
                   "%s is not set, but %s is \"%.100s\": expected the servers' "
                   "ip:port, with commas",
                   servers_variable, name, role);
}

/* What a launcher has bound for this process. */
static fleet_status take_inherited(fl_role *r)
{
    static const char name[] = "FLEET_LISTEN_FD";
    const char *fd = fl_variable(name);
    int number;

    if (!fd)
        return FLEET_OK;
    FL_TRY(fl_variable_read(name, fd, 1, 1 << 30, &number));
    return take_socket(r, name, number);
}

/* One process, or one of several ranks. */
static fleet_status read_rank(fl_role *r)
{
    fl_rank rank;

    FL_TRY(check_trainer("TRAINING_ROLE"));
    FL_TRY(check_trainer("PADDLE_TRAINING_ROLE"));
    FL_TRY(fl_rank_need(&rank));
    r->index = rank.index;
    r->worker_num = rank.num;
    r->collective = rank.num > 1;
    memcpy(r->first_rank, rank.first, sizeof rank.first);
    FL_TRY(fl_rank_gpu(&rank, &r->gpu));
    return r->collective && r->index == 0 ? take_inherited(r) : FLEET_OK;
}

static int port_of(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;

    if (fd <= 0 || getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return -1;
    return at.ss_family == AF_INET
               ? ntohs(((struct sockaddr_in *)&at)->sin_port)
           : at.ss_family == AF_INET6
               ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
               : -1;
}

/* The environment may be that of another server, and what it says of a socket,
 * too: then the descriptor is none of this process's. */
static fleet_status take_own_socket(fl_role *r)
{
    const char *fd = fl_variable("FLEET_LISTEN_FD");
    const char *port = fl_variable("PADDLE_PORT");

    return fd && port && port_of(atoi(fd)) == atoi(port) ? take_inherited(r)
                                                         : FLEET_OK;
}

/* A server that is not in the list of the job's servers: it comes while these
 * work, and has the next number, or a later one. */
static fleet_status join_job(fl_role *r)
{
    char endpoint[FL_ENDPOINT_SIZE];
    fl_address address;

    FL_TRY(fl_read_own_endpoint(endpoint, address));
    FL_TRY(fl_variable_read(join_variable, fl_variable(join_variable),
                            r->server_num, FL_MOST_SERVER - 1, &r->index));
    if (fl_find_endpoint(r->server, r->server_num, address) >= 0)
        return fl_fail(FLEET_EINVAL,
                       "%s is %d, but \"%s\" is in %s: expected an address of "
                       "its own for a server that joins a job",
                       join_variable, r->index, endpoint, servers_variable);
    memcpy(r->server[r->index], address, sizeof(fl_address));
    r->joins = true;
    return FLEET_OK;
}

/* POD_IP:PADDLE_PORT, which is in the list. */
static fleet_status find_own_endpoint(fl_role *r)
{
    const char *text;

    FL_TRY(need("POD_IP", "the address of this server", &text));
    FL_TRY(need("PADDLE_PORT", "an integer from 1 to 65535", &text));
    if (fl_variable(join_variable))
        return join_job(r);
    return fl_find_own_endpoint(servers_variable, r->endpoints, r->server,
                                r->server_num, &r->index);
}

/* Beside servers a worker is a rank, too, if whatever starts ranks has started
 * it as that one. It may as well have started other processes of the job; that
 * is an error only where Paddle's variables promise ranks. */
static fleet_status read_worker(fl_role *r)
{
    const bool promised = fl_variable(collective_variable) != NULL;
    fl_rank rank;
    fleet_status status = fl_rank_read(&rank, false);

    if (status != FLEET_OK && promised)
        return status;
    r->collective = promised || (status == FLEET_OK && rank.is_launched &&
                                 rank.num == r->worker_num && rank.index >= 0);
    if (r->collective && rank.index >= 0)
        r->index = rank.index;
    else
        FL_TRY(
            need_number("PADDLE_TRAINER_ID", 0, r->worker_num - 1, &r->index));
    rank.index = r->index;
    if (r->collective)
        memcpy(r->first_rank, rank.first, sizeof rank.first);
    FL_TRY(fl_rank_gpu(&rank, &r->gpu));
    return r->collective && r->index == 0 ? take_inherited(r) : FLEET_OK;
}

static fleet_status no_such_role(const char *role)
{
    return fl_fail(FLEET_EUNSUPPORTED,
                   "TRAINING_ROLE is \"%.100s\": expected TRAINER, PSERVER or "
                   "HETER_TRAINER; this version has no other roles",
                   role);
}

static fleet_status check_no_stages(void)
{
    const char *name = fl_stage_role_variable();

    if (!name)
        return FLEET_OK;
    return fl_fail(FLEET_ENOENT,
                   "%s is not set, but %s is: a job of stages has servers: "
                   "expected their ip:port, with commas",
                   servers_variable, name);
}

static fleet_status read_server(fl_role *r)
{
    r->kind = FLEET_SERVER;
    r->collective = fl_variable(collective_variable) != NULL;
    FL_TRY(find_own_endpoint(r));
    if (r->joins)
        return take_own_socket(r);
    FL_TRY(read_lane_ports(r));
    return take_inherited(r);
}

static fleet_status read_heter_worker(fl_role *r)
{
    const fl_rank none = {.index = 0, .local_index = -1};

    r->kind = FLEET_HETER_WORKER;
    FL_TRY(fl_stage_role_find_self(&r->stages, &r->index));
    FL_TRY(fl_rank_gpu(&none, &r->gpu));
    return take_inherited(r);
}

static fleet_status check_no_ranks(const fl_role *r)
{
    const char *size = fl_variable(collective_variable);

    if (r->stages.n_heter == 0 || !size)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s is \"%.100s\", but %s is set, too: workers of a job of "
                   "stages are no ranks",
                   collective_variable, size, fl_stage_role_list);
}

/* What a scheduler has said: which process this is, and where servers are. */
static fleet_status take_place(fl_role *r, const fl_scheduler_env *e,
                               fl_scheduler_place *place)
{
    r->index = place->rank;
    r->kind = e->role == FL_SCHEDULED_SERVER ? FLEET_SERVER : FLEET_WORKER;
    FL_TRY(take_servers(r, "MS_SCHED_HOST", fl_text_chars(&place->servers)));
    if (e->role == FL_SCHEDULED_WORKER)
        return fl_rank_gpu(
            &(fl_rank){.index = r->index, .local_index = place->local_index},
            &r->gpu);
    FL_TRY(read_lane_ports(r));
    FL_TRY(take_socket(r, "MS_ROLE", place->listen_fd));
    r->owns_listener = true;
    place->listen_fd = -1;
    return FLEET_OK;
}

static fleet_status ask_scheduler(fl_role *r, const fl_scheduler_env *e,
                                  const char *keys)
{
    const fl_scheduler_options o = {
        .env = e,
        .job = r->job_id,
        .keys = keys,
        .insecure = r->insecure,
        .connect_ms = r->deadline_ms[FL_CONNECT_DEADLINE],
        .peer_ms = r->deadline_ms[FL_PEER_DEADLINE]};
    fl_scheduler_place place;
    fleet_status status = fl_scheduler_ask(&r->scheduler, &o, &place);

    if (status == FLEET_OK)
        status = take_place(r, e, &place);
    fl_text_done(&place.servers);
    if (place.listen_fd >= 0)
        close(place.listen_fd);
    return status;
}

/* MindSpore's variables. */
static fleet_status read_scheduler(fl_role *r, const fl_scheduler_env *e,
                                   const fleet_options *o)
{
    const fl_rank none = {.index = 0, .local_index = -1};
    const char *keys;

    FL_TRY(find_keys(r, o->keys, &keys));
    r->worker_num = e->num[FL_SCHEDULED_WORKER];
    r->server_num = e->num[FL_SCHEDULED_SERVER];
    FL_TRY(fl_rank_gpu(&none, &r->gpu));
    if (!e->schedules)
        return ask_scheduler(r, e, keys);
    r->kind = FLEET_SERVER;
    r->schedules = true;
    r->scheduler_env = *e;
    r->scheduler_keys = keys ? fl_strdup(keys) : NULL;
    return keys && !r->scheduler_keys ? FLEET_ENOMEM : FLEET_OK;
}

static fleet_status read_environment(fl_role *r, const fleet_options *o)
{
    const char *servers = fl_variable(servers_variable), *role;
    fl_scheduler_env scheduler;
    bool has_scheduler;

    FL_TRY(fl_scheduler_env_read(&scheduler, &has_scheduler));
    if (has_scheduler)
        return read_scheduler(r, &scheduler, o);
    if (!servers) {
        FL_TRY(check_no_stages());
        return read_rank(r);
    }
    FL_TRY(take_servers(r, servers_variable, servers));
    FL_TRY(
        need_number("PADDLE_TRAINERS_NUM", 1, FL_MOST_STREAM, &r->worker_num));
    FL_TRY(need("TRAINING_ROLE", "TRAINER, PSERVER or HETER_TRAINER", &role));
    FL_TRY(fl_stage_role_read(&r->stages, role, r->worker_num));
    FL_TRY(check_no_ranks(r));
    if (strcmp(role, "TRAINER") == 0)
        return read_worker(r);
    if (strcmp(role, "PSERVER") == 0)
        return read_server(r);
    if (strcmp(role, "HETER_TRAINER") == 0)
        return read_heter_worker(r);
    return no_such_role(role);
}

/* --- the struct ----------------------------------------------------------- */

static fleet_status read_struct(fl_role *r, const fleet_role *said)
{
    const char *servers = said->server_endpoints;

    r->kind = said->kind;
    r->index = said->index;
    r->worker_num = said->worker_num ? said->worker_num : 1;
    FL_TRY(check_number("role.kind", said->kind, FLEET_WORKER, FLEET_SERVER));
    FL_TRY(check_number("role.worker_num", r->worker_num, 1, FL_MOST_STREAM));
    if (servers && *servers)
        FL_TRY(take_servers(r, "role.server_endpoints", servers));
    else if (said->kind == FLEET_SERVER)
        return fl_fail(FLEET_EINVAL,
                       "role.server_endpoints: a server needs them");
    FL_TRY(check_number("role.collective", said->collective, 0, 1));
    FL_TRY(check_number("role.gpu", said->gpu, 0, FL_MOST_STREAM));
    r->collective = said->collective || (!r->server_num && r->worker_num > 1);
    r->gpu = said->gpu;
    if (said->master && *said->master)
        FL_TRY(fl_read_endpoint("role.master", said->master,
                                strlen(said->master), r->first_rank));
    FL_TRY(check_number(
        "role.index", said->index, 0,
        (said->kind == FLEET_SERVER ? r->server_num : r->worker_num) - 1));
    if (said->listen_fd != 0 && said->listen_fd != -1 &&
        (said->kind == FLEET_SERVER || (r->collective && r->index == 0)))
        return take_socket(r, "role.listen_fd", said->listen_fd);
    return FLEET_OK;
}

/* --- what both say -------------------------------------------------------- */

static fleet_status read_deadlines(fl_role *r, const fleet_options *o)
{
    static const struct {
        const char *field, *variable;
        size_t offset;
        int otherwise;
    } deadlines[FL_N_DEADLINE] = {
#define DEADLINE(upper, lower, ms)                                             \
    [FL_##upper##                                                              \
        _DEADLINE] = {#lower "_deadline_ms", "FLEET_" #upper "_DEADLINE_MS",   \
                      offsetof(fleet_options, lower##_deadline_ms), ms}
        DEADLINE(CONNECT, connect, 60000), DEADLINE(REQUEST, request, 30000),
        DEADLINE(PEER, peer, 10000), DEADLINE(STEP, step, 600000)
#undef DEADLINE
    };

    for (int i = 0; i < FL_N_DEADLINE; i++) {
        const char *text = fl_variable(deadlines[i].variable);
        int64_t ms;

        memcpy(&ms, (const char *)o + deadlines[i].offset, sizeof ms);
        FL_TRY(check_number(deadlines[i].field, ms, 0, INT32_MAX));
        r->deadline_ms[i] = ms ? (int)ms : deadlines[i].otherwise;
        if (!ms && text)
            FL_TRY(fl_variable_read(deadlines[i].variable, text, 1, INT32_MAX,
                                    &r->deadline_ms[i]));
    }
    return FLEET_OK;
}

/* By default as many as fit the processors: lanes work while workers wait, so
 * two share that work on two processors; where there are many, workers may be
 * on the same machine. */
static fleet_status read_lanes(fl_role *r, const fleet_options *o)
{
    const char *text = fl_variable("FLEET_SERVER_LANES");
    int n = fl_cpu_count(), most;

    FL_TRY(check_number("server_lanes", o->server_lanes, 0, FL_MOST_LANE));
    r->lanes = o->server_lanes;
    if (r->lanes == 0 && text)
        return fl_variable_read("FLEET_SERVER_LANES", text, 1, FL_MOST_LANE,
                                &r->lanes);
    if (r->lanes > 0)
        return FLEET_OK;
    most = n / 4 > 2 ? n / 4 : 2;
    most = most < n ? most : n;
    r->lanes = most < FL_MOST_LANE ? most : FL_MOST_LANE;
    return FLEET_OK;
}

/* A lane without a bucket would keep nothing. */
static fleet_status fit_lanes(fl_role *r, const fleet_options *o)
{
    bool is_chosen =
        o->server_lanes > 0 || fl_variable("FLEET_SERVER_LANES") != NULL;
    int most = r->server_num > 0 ? FL_N_BUCKET / r->server_num : FL_N_BUCKET;

    if (r->lanes <= most)
        return FLEET_OK;
    if (is_chosen)
        return fl_fail(FLEET_EINVAL,
                       "server_lanes: %d lanes of each of %d servers: expected "
                       "at most %d, as all servers together have at most %d",
                       r->lanes, r->server_num, most, FL_N_BUCKET);
    r->lanes = most;
    return FLEET_OK;
}

/* Does it talk to servers by tcp, or can it meet ranks? */
static bool needs_keys(const fl_role *r)
{
    if (r->server && strncmp(r->server[0], "inproc://", 9) != 0)
        return true;
    return r->collective && r->worker_num > 1 && *r->first_rank;
}

fleet_status fl_role_read_keys(const fl_role *r, const char *given,
                               fl_key_role as, int index, fl_keys **keys)
{
    const char *folder;

    if (!needs_keys(r))
        return FLEET_OK;
    FL_TRY(find_keys(r, given, &folder));
    return folder ? fl_keys_read_as(keys, folder, as, index) : FLEET_OK;
}

static fleet_status read_keys(fl_role *r, const fleet_options *o)
{
    return fl_role_read_keys(
        r, o->keys, r->kind == FLEET_SERVER ? FL_ROLE_SERVER : FL_ROLE_WORKER,
        fl_role_stream(r), &r->keys);
}

fleet_status fl_role_open(fl_role *r, const fleet_options *o)
{
    const char *transport = fl_variable("FLEET_TRANSPORT");
    const char *id = o->role ? o->role->job_id : fl_variable("PADDLE_JOB_ID");

    *r = (fl_role){.worker_num = 1, .listen_fd = -1};
    FL_TRY(read_deadlines(r, o));
    FL_TRY(read_lanes(r, o));
    r->tcp_only = transport != NULL;
    if (transport && strcmp(transport, "tcp") != 0)
        return fl_fail(FLEET_EINVAL,
                       "FLEET_TRANSPORT is \"%.100s\": expected \"tcp\"",
                       transport);
    r->job_id = fl_strdup(id && *id ? id : "default");
    if (!r->job_id)
        return FLEET_ENOMEM;
    FL_TRY(check_number("no_sigterm_handler", o->no_sigterm_handler, 0, 1));
    r->no_sigterm_handler = o->no_sigterm_handler != 0;
    FL_TRY(
        check_number("keep_descriptor_limit", o->keep_descriptor_limit, 0, 1));
    r->keep_descriptor_limit = o->keep_descriptor_limit != 0;
    FL_TRY(read_insecure(r));
    FL_TRY(o->role ? read_struct(r, o->role) : read_environment(r, o));
    FL_TRY(read_keys(r, o));
    return fit_lanes(r, o);
}

void fl_role_done(fl_role *r)
{
    fl_scheduler_leave(r->scheduler);
    fl_free(r->scheduler_keys);
    fl_free(r->server);
    fl_free(r->endpoints);
    fl_free(r->job_id);
    fl_keys_destroy(r->keys);
    fl_stage_role_done(&r->stages);
    if ((r->kind == FLEET_HETER_WORKER || r->owns_listener) &&
        r->listen_fd >= 0)
        close(r->listen_fd); /* a server's is closed by what serves */
    *r = (fl_role){.listen_fd = -1};
}
