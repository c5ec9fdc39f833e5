/* save_part.c - saves and loads of a job with servers, or with tables that
 * ranks share out: worker 0 makes the folder, every lane or rank writes its own
 * part below it, worker 0 adds the manifest and puts it all in its place. Every
 * lane reads what it needs of a load for itself. */
#include "fleet/save_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/ranks.h"
#include "fleet/ranks_commands.h"
#include "fleet/save/table_part.h"
#include "ps/worker/worker_io.h"
#include "runtime/exec/executor.h"
#include "runtime/store/snapshot.h"

/* --- in a lane of a server, or a rank ------------------------------------- */

/* What worker 0 wants saved: names in the manifest's order. */
typedef struct request {
    const char *folder;
    bool states;
    fleet_save_mode mode;
    fl_at params, tables, least_shows;
    fl_save_link link; /* token 0: it is none */
} request;

static fleet_status read_link(const fl_at *root, fl_save_link *link)
{
    fl_at token = fl_at_key(root, "token"), base = fl_at_key(root, "base");

    if (!token.json)
        return FLEET_OK;
    FL_TRY(fl_at_hex(&token, &link->token));
    return fl_at_hex(&base, &link->base);
}

static fleet_status read_request(const fl_at *root, request *r)
{
    fl_at folder = fl_at_key(root, "folder"),
          states = fl_at_key(root, "states");
    fl_at mode_at = fl_at_key(root, "mode");
    int64_t mode = FLEET_SAVE_ALL;

    r->params = fl_at_key(root, "params");
    r->tables = fl_at_key(root, "tables");
    r->least_shows = fl_at_key(root, "least_shows");
    FL_TRY(fl_at_int(&mode_at, 0, FLEET_SAVE_DAY_END, &mode));
    r->mode = (fleet_save_mode)mode;
    FL_TRY(fl_at_required(&folder));
    FL_TRY(fl_at_string(&folder, &r->folder));
    FL_TRY(fl_at_array(&r->params));
    FL_TRY(fl_at_array(&r->tables));
    FL_TRY(read_link(root, &r->link));
    return fl_at_bool(&states, &r->states);
}

/* Parameters or tables by their names, in that order, for fl_free(). An empty
 * name is of one that other processes write. */
static fleet_status find_all(const fl_at *names, const fl_map *map, void *out,
                             int *n)
{
    void **found;

    *n = 0;
    FL_TRY(FL_NEW(&found, ((size_t)fl_at_count(names) + 1) * sizeof *found));
    *(void ***)out = found;
    for (fl_at e = fl_at_first(names); e.json; fl_at_next(names, &e)) {
        const char *name = "";

        FL_TRY(fl_at_string(&e, &name));
        found[*n] = fl_map_get(map, name);
        if (!found[(*n)++] && *name)
            return fl_fail(FLEET_ENOENT, "the server has no \"%s\"", name);
    }
    return FLEET_OK;
}

/* What these parts hold of each stream: of a lane that trains on meanwhile. */
static fleet_status put_cut(const fl_snapshot *frozen, const char *prefix,
                            fl_json *json)
{
    fl_json *cut = fl_json_object(), *list;
    const uint64_t *done;
    int n = fl_snapshot_streams(frozen, &done);

    FL_TRY(fl_json_put(json, "cut", cut));
    FL_TRY(fl_json_put(cut, "prefix", fl_json_string(prefix)));
    FL_TRY(
        fl_json_put(cut, "version", fl_json_int(fl_snapshot_version(frozen))));
    FL_TRY(fl_json_put_array(cut, "done", &list));
    for (int i = 0; i < n; i++)
        FL_TRY(fl_json_append(list, fl_json_int((int64_t)done[i])));
    return FLEET_OK;
}

static fleet_status describe_parts(const fl_save *s, const char *prefix,
                                   fl_json *list, char **answer)
{
    const fl_snapshot *frozen = s->store->snapshot;
    fl_json *json = fl_json_object(), *rows;
    fleet_status status;

    FL_GOTO(done, fl_json_put(json, "parts", fl_json_copy(list)));
    FL_GOTO(done, fl_json_put(json, "updates",
                              fl_json_int(frozen ? fl_snapshot_updates(frozen)
                                                 : s->store->updates)));
    FL_GOTO(done, frozen ? put_cut(frozen, prefix, json) : FLEET_OK);
    if (s->link && s->link->refused)
        FL_GOTO(done, fl_json_put(json, "refused", fl_json_bool(true)));
    FL_GOTO(done, fl_json_put_array(json, "rows", &rows));
    for (int i = 0; i < s->n_table; i++)
        FL_GOTO(done, fl_json_append(rows, fl_json_int(s->written[i])));
    *answer = fl_json_print(json, false);
    status = *answer ? FLEET_OK : FLEET_ENOMEM;
done:
    fl_json_free(json);
    return status;
}

/* How often rows must have been shown, by table, for fl_free(); NULL: that is
 * not asked. */
static fleet_status read_least(const fl_at *list, int n, float **least)
{
    *least = NULL;
    if (!list->json)
        return FLEET_OK;
    FL_TRY(FL_NEW(least, ((size_t)n + 1) * sizeof **least));
    for (int i = 0; i < n; i++) {
        fl_at one = fl_at_index(list, i);

        FL_TRY(fl_at_float(&one, &(*least)[i]));
    }
    return FLEET_OK;
}

static fleet_status save_parts(fl_store *store, const fl_bucket_set *own,
                               const char *prefix, request *r, char **answer)
{
    fl_save s = {.store = store,
                 .states = r->states,
                 .own = own,
                 .mode = r->mode,
                 .link = r->link.token ? &r->link : NULL};
    fl_json *list = fl_json_array();
    float *least = NULL;
    fleet_status status;

    FL_GOTO(done, list ? FLEET_OK : FLEET_ENOMEM);
    FL_GOTO(done, find_all(&r->params, &store->params, &s.param, &s.n_param));
    FL_GOTO(done, find_all(&r->tables, &store->tables, &s.table, &s.n_table));
    FL_GOTO(done, read_least(&r->least_shows, s.n_table, &least));
    s.least_shows = least;
    FL_GOTO(done,
            FL_NEW(&s.written, ((size_t)s.n_table + 1) * sizeof *s.written));
    FL_GOTO(done, fl_save_parts(&s, r->folder, prefix, list));
    status = describe_parts(&s, prefix, list, answer);
done:
    fl_json_free(list);
    fl_free(s.param);
    fl_free(s.table);
    fl_free(s.written);
    fl_free(least);
    return status;
}

typedef struct lane_load {
    fl_store *store;
    const fl_bucket_set *own;
    fl_load_how how;
} lane_load;

static fleet_status load_lane(void *arg, fl_saved *s)
{
    lane_load *l = arg;

    return fl_saved_apply(s, l->store, l->own, &l->how);
}

static fleet_status load_request(fl_store *store, const fl_bucket_set *own,
                                 const char *text, char **answer)
{
    lane_load load = {.store = store, .own = own};
    const char *path = "";
    fl_json *json = NULL;
    fleet_status status;

    FL_TRY(fl_json_parse(text, strlen(text), "load", &json));
    status = fl_load_how_read(json, &load.how, &path);
    if (status == FLEET_OK)
        status =
            fl_saved_use(path, fl_load_how_what(&load.how), load_lane, &load);
    fl_json_free(json);
    FL_TRY(status);
    *answer = fl_strdup("loaded");
    return *answer ? FLEET_OK : FLEET_ENOMEM;
}

/* Files whose names begin with the prefix; *answer is JSON for worker 0. */
static fleet_status save_request(fl_store *store, const fl_bucket_set *own,
                                 const char *prefix, const char *text,
                                 char **answer)
{
    fl_json *json = NULL;
    fleet_status status;
    request r = {0};
    fl_at root;

    FL_TRY(fl_json_parse(text, strlen(text), "save", &json));
    root = fl_at_root(json);
    status = read_request(&root, &r);
    if (status == FLEET_OK)
        status = save_parts(store, own, prefix, &r, answer);
    fl_json_free(json);
    return status;
}

static fleet_status do_command(const char *who, fl_store *store,
                               const fl_bucket_set *own, int server, int lane,
                               fl_job_command command, const char *text,
                               char **answer)
{
    char prefix[32];

    if (command == FL_COMMAND_LOAD)
        return load_request(store, own, text, answer);
    if (command == FL_COMMAND_READ || command == FL_COMMAND_WRITE)
        return fl_table_part(store, own, command, text, answer);
    snprintf(prefix, sizeof prefix, "part-%03d-%02d-%s", server, lane, who);
    return save_request(store, own, prefix, text, answer);
}

fleet_status fl_save_part_of_lane(void *arg, fl_store *store,
                                  const fl_bucket_set *own, int server,
                                  int lane, fl_job_command command,
                                  const char *text, char **answer)
{
    (void)arg;
    return do_command("", store, own, server, lane, command, text, answer);
}

/* The one that has led may have begun with these parts, or may wake up and go
 * on with them. */
fleet_status fl_save_part_of_replica(void *arg, fl_store *store,
                                     const fl_bucket_set *own, int server,
                                     int lane, fl_job_command command,
                                     const char *text, char **answer)
{
    (void)arg;
    return do_command("replica-", store, own, server, lane, command, text,
                      answer);
}

fleet_status fl_save_part_of_rank(fl_store *store, const fl_bucket_set *own,
                                  int rank, const char *text, char **answer)
{
    char prefix[32];

    snprintf(prefix, sizeof prefix, "part-rank-%03d-", rank);
    return save_request(store, own, prefix, text, answer);
}

/* --- in worker 0 ---------------------------------------------------------- */

static fleet_status put_least(const fl_save *s, fl_json *json)
{
    fl_json *list;

    if (!s->least_shows)
        return FLEET_OK;
    FL_TRY(fl_json_put_array(json, "least_shows", &list));
    for (int i = 0; i < s->n_table; i++)
        FL_TRY(
            fl_json_append(list, fl_json_double((double)s->least_shows[i], 9)));
    return FLEET_OK;
}

static fleet_status put_link(const fl_save *s, fl_json *json)
{
    if (!s->link)
        return FLEET_OK;
    FL_TRY(fl_json_put(json, "token", fl_json_hex(s->link->token)));
    return fl_json_put(json, "base", fl_json_hex(s->link->base));
}

fleet_status fl_save_part_request(const fl_save *s, const char *folder,
                                  char **text)
{
    fl_json *json = fl_json_object(), *params, *tables;
    fleet_status status;

    FL_GOTO(done, fl_json_put(json, "folder", fl_json_string(folder)));
    FL_GOTO(done, fl_json_put(json, "states", fl_json_bool(s->states)));
    FL_GOTO(done, fl_json_put_array(json, "params", &params));
    for (int i = 0; i < s->n_param; i++) {
        const char *name = s->param[i] ? s->param[i]->name : "";

        FL_GOTO(done, fl_json_append(params, fl_json_string(name)));
    }
    FL_GOTO(done, fl_json_put_array(json, "tables", &tables));
    for (int i = 0; i < s->n_table; i++) {
        const char *name = s->table[i] ? s->table[i]->name : "";

        FL_GOTO(done, fl_json_append(tables, fl_json_string(name)));
    }
    FL_GOTO(done, fl_json_put(json, "mode", fl_json_int(s->mode)));
    FL_GOTO(done, put_least(s, json));
    FL_GOTO(done, put_link(s, json));
    *text = fl_json_print(json, false);
    status = *text ? FLEET_OK : FLEET_ENOMEM;
done:
    fl_json_free(json);
    return status;
}

/* One lane's or rank's answer: its parts and rows are added to the list. */
static fleet_status add_answer(const fl_save *s, const fl_json *json,
                               fl_json *list)
{
    fl_save_elsewhere *e = s->elsewhere;
    const int n_table = s->n_table;
    fl_at root = fl_at_root(json), parts = fl_at_key(&root, "parts");
    fl_at rows = fl_at_key(&root, "rows"), at = fl_at_key(&root, "updates");
    fl_at cut = fl_at_key(&root, "cut");
    fl_at refused = fl_at_key(&root, "refused");
    int64_t updates = 0;
    bool is_refused = false;
    int i = 0;

    FL_TRY(fl_at_bool(&refused, &is_refused));
    if (s->link && is_refused)
        s->link->refused = true;
    FL_TRY(fl_at_int(&at, 0, FL_MOST_EXACT, &updates));
    e->updates = updates > e->updates ? updates : e->updates;
    if (cut.json)
        FL_TRY(fl_json_append(e->cuts, fl_json_copy(cut.json)));
    for (fl_at p = fl_at_first(&parts); p.json; fl_at_next(&parts, &p))
        FL_TRY(fl_json_append(list, fl_json_copy(p.json)));
    for (fl_at r = fl_at_first(&rows); r.json && i < n_table;
         fl_at_next(&rows, &r), i++) {
        int64_t n = 0;

        FL_TRY(fl_at_int(&r, 0, FL_MOST_EXACT, &n));
        e->rows[i] += n;
    }
    return FLEET_OK;
}

fleet_status fl_save_part_answer(const fl_save *s, const char *answer,
                                 fl_json *list)
{
    fl_json *json = NULL;
    fleet_status status = fl_json_parse(answer, strlen(answer), "save", &json);

    if (status == FLEET_OK)
        status = add_answer(s, json, list);
    fl_json_free(json);
    return status;
}

/* The path is absolute: servers may run in another working folder. */
static fleet_status command_save(fleet *f, const fl_save *s, bool by_ranks,
                                 const char *folder, char **answer)
{
    char *path = realpath(folder, NULL), *text = NULL;
    fleet_status status = FLEET_EIO;

    if (path)
        status = fl_save_part_request(s, path, &text);
    else
        fl_fail(FLEET_EIO, "%s: cannot be found", folder);
    if (status == FLEET_OK)
        status = by_ranks ? fl_ranks_command(f, FL_COMMAND_SAVE, text, answer)
                          : fl_worker_io_command(f->worker_io, FL_COMMAND_SAVE,
                                                 text, answer);
    fl_free(text);
    free(path);
    return status;
}

static fleet_status write_parts(fleet *f, const fl_save *s, bool by_ranks,
                                const char *folder, fl_json *list)
{
    int n = by_ranks ? f->role.worker_num : fl_worker_io_lanes(f->worker_io);
    char **answer = fl_alloc_array((size_t)n + 1, sizeof *answer);
    fleet_status status = FLEET_ENOMEM;

    if (answer)
        status = command_save(f, s, by_ranks, folder, answer);
    for (int i = 0; answer && i < n; i++) {
        if (status == FLEET_OK)
            status = fl_save_part_answer(s, answer[i], list);
        fl_free(answer[i]);
    }
    fl_free(answer);
    return status;
}

/* What is on servers, or what is not; fl_free() both arrays. */
static fleet_status select_home(const fl_save *all, bool remote, fl_save *s)
{
    *s = *all;
    s->table = NULL;
    FL_TRY(FL_NEW(&s->param, ((size_t)s->n_param + 1) * sizeof *s->param));
    FL_TRY(FL_NEW(&s->table, ((size_t)s->n_table + 1) * sizeof *s->table));
    for (int i = 0; i < s->n_param; i++)
        if (fl_param_is_remote(s->store, all->param[i]) == remote)
            s->param[i] = all->param[i];
    for (int i = 0; i < s->n_table; i++)
        if (all->table[i]->remote == remote)
            s->table[i] = all->table[i];
    return FLEET_OK;
}

/* Servers write what is on them; the rest is written by the ranks if each has
 * its own part of it, else by this one. */
static fleet_status write_home(fleet *f, const fl_save *all, bool remote,
                               const char *folder, fl_json *list)
{
    fl_save s;
    fleet_status status = select_home(all, remote, &s);

    if (status == FLEET_OK)
        status = remote || fl_ranks_share(f)
                     ? write_parts(f, &s, !remote, folder, list)
                     : fl_save_parts(&s, folder, "part-dense-", list);
    fl_free(s.param);
    fl_free(s.table);
    return status;
}

fleet_status fl_save_part_collect(void *arg, const fl_save *s,
                                  const char *folder, fl_json *list)
{
    fleet *f = arg;

    if (!f->worker_io || !f->store->dense_local)
        return write_parts(f, s, !f->worker_io, folder, list);
    FL_TRY(write_home(f, s, true, folder, list));
    FL_TRY(write_home(f, s, false, folder, list));
    s->elsewhere->updates = f->store->updates;
    return FLEET_OK;
}

/* The path is absolute, as above. */
fleet_status fl_save_part_load_text(const char *path, const fl_load_how *how,
                                    char **text)
{
    char *whole = realpath(path, NULL);
    fleet_status status =
        whole
            ? fl_load_how_print(how, whole, text)
            : fl_fail(FLEET_ENOENT, "load: %s: there is no such folder", path);

    free(whole);
    return status;
}

static fleet_status follow_table(fleet *f, bool remote, const char *text,
                                 char **answer)
{
    fleet_status status;

    if (remote)
        return fl_worker_io_command(f->worker_io, FL_COMMAND_WRITE, text,
                                    answer);
    FL_TRY(fl_store_synchronize(f->store));
    pthread_rwlock_wrlock(&f->store->lock);
    status =
        f->comm && f->role.worker_num > 1
            ? fl_ranks_command(f, FL_COMMAND_WRITE, text, answer)
            : fl_table_part(f->store, NULL, FL_COMMAND_WRITE, text, answer);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

static fleet_status tell_follow(fleet *f, const fl_rows *r)
{
    const int n =
        r->remote ? fl_worker_io_lanes(f->worker_io) : f->role.worker_num + 1;
    char *text = NULL, **answer = fl_alloc_array((size_t)n + 1, sizeof *answer);
    fleet_status status = FLEET_ENOMEM;

    if (answer)
        status = fl_table_follow_text(r->name, &text);
    if (status == FLEET_OK)
        status = follow_table(f, r->remote, text, answer);
    for (int i = 0; answer && i < n; i++)
        fl_free(answer[i]);
    fl_free(answer);
    fl_free(text);
    return status;
}

fleet_status fl_save_part_follow(fleet *f)
{
    const fl_map *tables = &f->store->tables;

    for (size_t i = 0; i < tables->n; i++)
        FL_TRY(tell_follow(f, tables->entry[i].value));
    return FLEET_OK;
}

/* A worker that was started again makes no save again: one of what rows have
 * changed since the last one would have none. */
fleet_status fl_save_part_write(fleet *f, const fl_save *s, const char *path)
{
    fleet_status status;
    fl_error error;
    bool over = false;

    if (f->worker_io)
        FL_TRY(fl_worker_io_knows_save(f->worker_io, &over));
    if (over) {
        FL_INFO(&f->context.log,
                "%s: was saved before worker %d was started again", path,
                f->role.index);
        return FLEET_OK;
    }
    status = fl_save_write(s, path);
    if (!f->worker_io)
        return status;
    fl_error_take(&error, status);
    FL_TRY(fl_worker_io_note_saved(f->worker_io, status));
    return fl_error_raise(&error);
}
