/* feed_batch.c - what a lane's answer has, checked and laid out. */
#include <string.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "ps/feed/feed_internal.h"
#include "runtime/store/store.h"

/* --- what there is -------------------------------------------------------- */

static fleet_status read_list(const fl_at *root, const char *key,
                              const char *number, fl_feed_item **list, int *n)
{
    fl_at at = fl_at_key(root, key);

    FL_TRY(fl_at_array(&at));
    FL_TRY(FL_NEW(list, ((size_t)fl_at_count(&at) + 1) * sizeof **list));
    for (fl_at e = fl_at_first(&at); e.json; fl_at_next(&at, &e)) {
        fl_at name_at = fl_at_key(&e, "name"), n_at = fl_at_key(&e, number);
        const char *name = "";
        fl_feed_item *item = &(*list)[*n];

        FL_TRY(fl_at_required(&name_at));
        FL_TRY(fl_at_string(&name_at, &name));
        FL_TRY(fl_at_required(&n_at));
        FL_TRY(fl_at_int(&n_at, 0, (int64_t)1 << 40, &item->n));
        item->name = fl_strdup(name);
        FL_TRY(item->name ? FLEET_OK : FLEET_ENOMEM);
        ++*n;
    }
    return FLEET_OK;
}

/* Keys are spread over as many servers as the job has. */
static fleet_status check_servers(const fl_feed_client *c, const fl_at *root)
{
    fl_at at = fl_at_key(root, "servers");
    int64_t n = 0;

    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_int(&at, 1, FL_MOST_SERVER, &n));
    if (n == c->o.n_server)
        return FLEET_OK;
    return fl_fail(
        FLEET_EINVAL,
        "the job's servers are %lld, and the feed was given addresses "
        "of %d",
        (long long)n, c->o.n_server);
}

fleet_status fl_feed_read_items(fl_feed_client *c, const char *text)
{
    fl_json *json = NULL;
    fleet_status status;

    if (c->text)
        return strcmp(c->text, text) == 0
                   ? FLEET_OK
                   : fl_fail(FLEET_EINVAL,
                             "the feed's servers do not keep the same tables "
                             "and parameters as before, or as each other");
    FL_TRY(fl_json_parse(text, strlen(text), "feed", &json));
    fl_at root = fl_at_root(json);
    status = check_servers(c, &root);
    if (status == FLEET_OK)
        status = read_list(&root, "tables", "dim", &c->table, &c->n_table);
    if (status == FLEET_OK)
        status = read_list(&root, "params", "n", &c->param, &c->n_param);
    fl_json_free(json);
    c->text = status == FLEET_OK ? fl_strdup(text) : NULL;
    return status == FLEET_OK && !c->text ? FLEET_ENOMEM : status;
}

/* --- an answer ------------------------------------------------------------ */

fl_feed_answer fl_feed_answer_of(const fl_msg *msg)
{
    fl_feed_answer answer;

    memcpy(&answer, msg->column[0][FL_AT_BYTES].data, sizeof answer);
    return answer;
}

static int64_t block_size(const fl_feed_client *c, uint64_t key)
{
    uint64_t param = key >> 32;
    int64_t first = (int64_t)(key & UINT32_MAX) * FL_BLOCK, left;

    if (param >= (uint64_t)c->n_param)
        return 0;
    left = c->param[param].n - first;
    return left <= 0 ? 0 : left < FL_BLOCK ? left : FL_BLOCK;
}

static bool is_dense(const fl_feed_client *c, const fl_section *s,
                     const fl_frame *column)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < s->n_key; i++) {
        int64_t n = block_size(c, fl_key_at(&column[FL_AT_KEYS], i));

        bytes += (size_t)n * sizeof(float);
        if (n == 0)
            return false;
    }
    return column[FL_AT_VALUES].size == bytes;
}

static bool is_section(const fl_feed_client *c, const fl_section *s,
                       const fl_frame *column)
{
    if (!column[FL_AT_KEYS].data || s->n_key == 0 || s->codec != FL_CODEC_F32)
        return false;
    if (s->op == FL_SECTION_DENSE)
        return is_dense(c, s, column);
    if (s->table >= (uint32_t)c->n_table || c->table[s->table].n == 0)
        return false;
    if (s->op == FL_SECTION_GONE)
        return true;
    return s->op == FL_SECTION_ROWS && column[FL_AT_VERSIONS].data &&
           column[FL_AT_VALUES].size % s->n_key == 0 &&
           column[FL_AT_VALUES].size / s->n_key ==
               (size_t)c->table[s->table].n * sizeof(float);
}

fleet_status fl_feed_check_answer(const fl_feed_client *c)
{
    const fl_msg *m = &c->msg;
    bool good = m->head.n_section > 0 && m->section[0].op == FL_SECTION_FEED &&
                m->column[0][FL_AT_BYTES].size == sizeof(fl_feed_answer);

    for (int i = 1; good && i < m->head.n_section; i++)
        good = is_section(c, &m->section[i], m->column[i]);
    return good ? FLEET_OK
                : fl_fail(FLEET_EFORMAT,
                          "a server has answered a subscriber with what is no "
                          "part of what it keeps");
}

/* --- a batch -------------------------------------------------------------- */

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Columns as they may be used: at multiples of their size. */
static void *copy_column(char **to, const fl_frame *f)
{
    void *copy = *to;

    if (f->size > 0)
        memcpy(copy, f->data, f->size);
    *to += rounded(f->size);
    return copy;
}

static void take_rows(const fl_feed_client *c, const fl_section *s,
                      const fl_frame *column, char **to, fleet_feed_part *part)
{
    bool gone = s->op == FL_SECTION_GONE;

    *part = (fleet_feed_part){.kind = gone ? FLEET_FEED_GONE : FLEET_FEED_ROWS,
                              .name = c->table[s->table].name,
                              .dim = c->table[s->table].n,
                              .n = s->n_key};
    part->key = copy_column(to, &column[FL_AT_KEYS]);
    if (gone)
        return;
    part->value = copy_column(to, &column[FL_AT_VALUES]);
    part->version = copy_column(to, &column[FL_AT_VERSIONS]);
}

static int take_blocks(const fl_feed_client *c, const fl_section *s,
                       const fl_frame *column, char **to, fleet_feed_part *part)
{
    const float *value = copy_column(to, &column[FL_AT_VALUES]);

    for (uint32_t i = 0; i < s->n_key; i++) {
        uint64_t key = fl_key_at(&column[FL_AT_KEYS], i);

        part[i] =
            (fleet_feed_part){.kind = FLEET_FEED_WEIGHTS,
                              .name = c->param[key >> 32].name,
                              .first = (int64_t)(key & UINT32_MAX) * FL_BLOCK,
                              .n = block_size(c, key),
                              .value = value};
        value += part[i].n;
    }
    return (int)s->n_key;
}

static fleet_status make_room(fl_feed_client *c)
{
    const fl_msg *m = &c->msg;
    size_t parts = 1, bytes = 64;

    for (int i = 1; i < m->head.n_section; i++) {
        parts += m->section[i].op == FL_SECTION_DENSE ? m->section[i].n_key : 1;
        for (int j = 0; j < FL_N_COLUMN; j++)
            bytes += rounded(m->column[i][j].size);
    }
    FL_TRY(fl_grow(&c->part, &c->part_capacity, parts, sizeof *c->part));
    return fl_grow(&c->copy, &c->copy_capacity, bytes, 1);
}

fleet_status fl_feed_read_batch(fl_feed_client *c, int lane,
                                fleet_feed_batch *batch)
{
    const fl_msg *m = &c->msg;
    fl_feed_answer answer = fl_feed_answer_of(m);
    char *to;
    int n = 0;

    FL_TRY(make_room(c));
    to = (char *)rounded((size_t)(uintptr_t)c->copy);
    for (int i = 1; i < m->head.n_section; i++) {
        if (m->section[i].op == FL_SECTION_DENSE)
            n += take_blocks(c, &m->section[i], m->column[i], &to, c->part + n);
        else
            take_rows(c, &m->section[i], m->column[i], &to, &c->part[n++]);
    }
    *batch = (fleet_feed_batch){.lane = lane,
                                .begins = (answer.flags & FL_FLAG_BEGINS) != 0,
                                .complete = answer.position.table == 0,
                                .over = (answer.flags & FL_FLAG_OVER) != 0,
                                .version = answer.version,
                                .part = c->part,
                                .n_part = n};
    return FLEET_OK;
}
