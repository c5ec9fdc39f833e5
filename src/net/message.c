/* message.c - messages read and written, field by field; every number that came
 * is checked before it is used. */
#include "net/message.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "fields and columns go as they lie in memory");

/* --- layout ----------------------------------------------------------------
 * Fields in their order on the wire; the magic is before the head's, the sum
 * behind them. */

#define HEAD_FIELDS(XX)                                                        \
    XX(version)                                                                \
    XX(kind)                                                                   \
    XX(flags)                                                                  \
    XX(job)                                                                    \
    XX(generation)                                                             \
    XX(view)                                                                   \
    XX(stream)                                                                 \
    XX(incarnation)                                                            \
    XX(step)                                                                   \
    XX(request)                                                                \
    XX(peer)                                                                   \
    XX(timeout_ms)                                                             \
    XX(piece)                                                                  \
    XX(n_section)                                                              \
    XX(status)

#define ANSWER_FIELDS(XX)                                                      \
    XX(applied)                                                                \
    XX(durable)                                                                \
    XX(credit_bytes)                                                           \
    XX(missing_stream)

#define SECTION_FIELDS(XX)                                                     \
    XX(table)                                                                  \
    XX(op)                                                                     \
    XX(codec)                                                                  \
    XX(columns)                                                                \
    XX(n_run)                                                                  \
    XX(n_key)                                                                  \
    XX(version)                                                                \
    XX(learning_rate)                                                          \
    XX(n_batch)

enum { AT_MAGIC = 0, AT_HEAD = 4, AT_SUM = 60, MOST_HEAD = 88 };

/* Functions that read and write a struct, field by field; each gives what is
 * behind it. */
#define READ(field)                                                            \
    memcpy(&to->field, from, sizeof to->field);                                \
    from += sizeof to->field;
#define WRITE(field)                                                           \
    memcpy(to, &from->field, sizeof from->field);                              \
    to += sizeof from->field;
#define LAYOUT(name, type, FIELDS)                                             \
    static const uint8_t *read_##name(type *to, const uint8_t *from)           \
    {                                                                          \
        FIELDS(READ)                                                           \
        return from;                                                           \
    }                                                                          \
    static uint8_t *write_##name(uint8_t *to, const type *from)                \
    {                                                                          \
        FIELDS(WRITE)                                                          \
        return to;                                                             \
    }

LAYOUT(head, fl_msg_head, HEAD_FIELDS)
LAYOUT(answer, fl_msg_answer, ANSWER_FIELDS)
LAYOUT(section, fl_section, SECTION_FIELDS)

static uint32_t u32_at(const uint8_t *from)
{
    uint32_t number;

    memcpy(&number, from, sizeof number);
    return number;
}

static size_t head_size(int kind)
{
    return FL_MSG_HEAD_SIZE + (kind == FL_MSG_ANSWER ? FL_MSG_ANSWER_SIZE : 0);
}

/* The sum of a head of the right size and of what follows it: with CRC_ALL
 * everything, else the sections. */
static uint32_t sum_of(const fl_packet *p, const fl_msg_head *head)
{
    int n =
        head->flags & FL_MSG_CRC_ALL ? p->n_frame : 1 + (head->n_section > 0);
    uint8_t first[MOST_HEAD];
    uint32_t sum;

    memcpy(first, p->frame[0].data, p->frame[0].size);
    memset(first + AT_SUM, 0, sizeof sum);
    sum = fl_crc32c(0, first, p->frame[0].size);
    for (int i = 1; i < n; i++)
        sum = fl_crc32c(sum, p->frame[i].data, p->frame[i].size);
    return sum;
}

const char *fl_msg_kind_name(fl_msg_kind kind)
{
    static const char *const names[FL_MSG_KINDS] = {
#define FL_MESSAGE(KIND, name, flags, handler) [FL_MSG_##KIND] = name,
#include "net/message.def"
#undef FL_MESSAGE
    };

    return names[kind];
}

/* --- columns -------------------------------------------------------------- */

/* The size of a column is this; 0: a multiple of *unit. */
static size_t column_size(const fl_section *s, int column, size_t *unit)
{
    static const uint8_t value_size[FL_SECTION_OPS] = {
#define FL_SECTION(OP, value) [FL_SECTION_##OP] = sizeof(value),
#include "net/message.def"
#undef FL_SECTION
    };

    static const uint8_t codec_size[FL_N_CODEC] = {
        [FL_CODEC_F16] = 2, [FL_CODEC_BF16] = 2, [FL_CODEC_INT8] = 1};

    *unit = column != FL_COLUMN_VALUES       ? 1
            : fl_codec_of(s) != FL_CODEC_F32 ? codec_size[fl_codec_of(s)]
                                             : value_size[s->op];
    switch (column) {
    case FL_COLUMN_RUNS:
        return (size_t)s->n_run * 8;
    case FL_COLUMN_KEYS:
    case FL_COLUMN_VERSIONS:
        return (size_t)s->n_key * 8;
    case FL_COLUMN_COUNTS:
        return (size_t)s->n_key * 4;
    default:
        return 0;
    }
}

static fleet_status check_column(const fl_section *s, int i, int column,
                                 size_t size)
{
    bool any = column & (FL_COLUMN_VALUES | FL_COLUMN_BYTES) ||
               (column == FL_COLUMN_KEYS && fl_has_packed_keys(s));
    size_t unit, want = column_size(s, column, &unit);

    if (any ? size % unit != 0 : size != want)
        return fl_fail(FLEET_EFORMAT,
                       "message: section %d: column %d has %zu bytes, not "
                       "%s%zu",
                       i, column, size, any ? "a multiple of " : "",
                       any ? unit : want);
    return FLEET_OK;
}

static bool has_codec(const fl_section *s)
{
    if (fl_has_packed_keys(s) && s->op != FL_SECTION_ROWS)
        return false;
    return fl_codec_of(s) == FL_CODEC_F32 ||
           (fl_codec_of(s) < FL_N_CODEC &&
            (s->op == FL_SECTION_DENSE || s->op == FL_SECTION_ROWS));
}

static fleet_status check_section(const fl_section *s, int i)
{
    if (s->op == FL_SECTION_NO_OP || s->op >= FL_SECTION_OPS)
        return fl_fail(FLEET_EFORMAT, "message: section %d: no such op: %d", i,
                       s->op);
    if (!has_codec(s))
        return fl_fail(FLEET_EFORMAT, "message: section %d: no such codec: %d",
                       i, s->codec);
    if (s->columns & ~FL_COLUMNS)
        return fl_fail(FLEET_EFORMAT,
                       "message: section %d: no such columns: 0x%02x", i,
                       s->columns);
    if (s->n_run > 0 && !(s->columns & FL_COLUMN_RUNS))
        return fl_fail(FLEET_EFORMAT,
                       "message: section %d: %u runs without a column of them",
                       i, s->n_run);
    return FLEET_OK;
}

/* Check section i and its columns, which begin at frame *next; *next then is
 * the frame behind them. */
static fleet_status take_section(const fl_packet *p, const fl_section *s, int i,
                                 int *next, fl_frame column[FL_N_COLUMN])
{
    FL_TRY(check_section(s, i));
    for (int bit = 0; bit < FL_N_COLUMN; bit++) {
        fl_frame *frame = &p->frame[*next];

        column[bit] = (fl_frame){NULL, 0};
        if (!(s->columns & 1 << bit))
            continue;
        if (*next >= p->n_frame)
            return fl_fail(FLEET_EFORMAT,
                           "message: section %d: column %d is missing: there "
                           "are %d frames",
                           i, 1 << bit, p->n_frame);
        FL_TRY(check_column(s, i, 1 << bit, frame->size));
        column[bit] = *frame;
        ++*next;
    }
    return FLEET_OK;
}

/* --- reading -------------------------------------------------------------- */

static fleet_status read_version(const fl_packet *p, fl_msg_head *head)
{
    const uint8_t *bytes;

    if (p->n_frame < 1 || p->frame[0].size < FL_MSG_HEAD_SIZE)
        return fl_fail(FLEET_EFORMAT, "message: the head has %zu bytes, not %d",
                       p->n_frame ? p->frame[0].size : 0, FL_MSG_HEAD_SIZE);
    bytes = p->frame[0].data;
    if (u32_at(bytes + AT_MAGIC) != FL_MSG_MAGIC)
        return fl_fail(FLEET_EFORMAT, "message: begins with 0x%08x, not 0x%08x",
                       u32_at(bytes + AT_MAGIC), FL_MSG_MAGIC);
    read_head(head, bytes + AT_HEAD);
    if (head->version == FL_MSG_VERSION)
        return FLEET_OK;
    /* the rest may mean something else in that version */
    *head = (fl_msg_head){.version = head->version,
                          .kind = head->kind,
                          .stream = head->stream,
                          .request = head->request};
    return fl_fail(FLEET_EUNSUPPORTED,
                   "message: version %d, but this library speaks %d",
                   head->version, FL_MSG_VERSION);
}

/* Sizes of the frames that the sum covers, then the sum. */
static fleet_status check_sum(const fl_packet *p, const fl_msg_head *head)
{
    size_t want = (size_t)head->n_section * FL_MSG_SECTION_SIZE, got;
    uint32_t sum, stored;

    if (p->frame[0].size != head_size(head->kind))
        return fl_fail(FLEET_EFORMAT,
                       "message of kind %d: the head has %zu bytes, not %zu",
                       head->kind, p->frame[0].size, head_size(head->kind));
    if (head->n_section > FL_MSG_MOST_SECTION)
        return fl_fail(FLEET_EFORMAT, "message: %d sections, more than %d",
                       head->n_section, FL_MSG_MOST_SECTION);
    got = p->n_frame > 1 ? p->frame[1].size : 0;
    if (got != want || (p->n_frame > 1) != (want > 0))
        return fl_fail(FLEET_EFORMAT,
                       "message of %d frames: the sections have %zu bytes, not "
                       "%zu",
                       p->n_frame, got, want);
    sum = sum_of(p, head);
    stored = u32_at((const uint8_t *)p->frame[0].data + AT_SUM);
    if (sum != stored)
        return fl_fail(FLEET_EFORMAT,
                       "message: the sum is 0x%08x, but 0x%08x came with it",
                       sum, stored);
    return FLEET_OK;
}

static fleet_status check_head(const fl_msg_head *head)
{
    if (head->kind == FL_MSG_NO_KIND || head->kind >= FL_MSG_KINDS)
        return fl_fail(FLEET_EFORMAT, "message: no such kind: %d", head->kind);
    if (head->flags & ~FL_MSG_FLAGS)
        return fl_fail(FLEET_EFORMAT, "message: no such flags: 0x%04x",
                       head->flags);
    if (head->status > (head->kind == FL_MSG_ANSWER ? FL_ANSWER_COMING : 0))
        return fl_fail(FLEET_EFORMAT, "message of kind %d: no such status: %d",
                       head->kind, head->status);
    return FLEET_OK;
}

static fleet_status read_sections(const fl_packet *p, fl_msg *msg)
{
    const uint8_t *bytes = p->n_frame > 1 ? p->frame[1].data : NULL;
    int next = msg->head.n_section > 0 ? 2 : 1;

    for (int i = 0; i < msg->head.n_section; i++) {
        bytes = read_section(&msg->section[i], bytes);
        FL_TRY(take_section(p, &msg->section[i], i, &next, msg->column[i]));
    }
    if (next != p->n_frame)
        return fl_fail(FLEET_EFORMAT,
                       "message: %d frames, but %d are spoken of", p->n_frame,
                       next);
    return FLEET_OK;
}

fleet_status fl_msg_decode(const fl_packet *p, fl_msg *msg)
{
    msg->head = (fl_msg_head){0};
    msg->answer = (fl_msg_answer){0};
    FL_TRY(read_version(p, &msg->head));
    FL_TRY(check_sum(p, &msg->head));
    FL_TRY(check_head(&msg->head));
    if (msg->head.kind == FL_MSG_ANSWER)
        read_answer(&msg->answer,
                    (const uint8_t *)p->frame[0].data + FL_MSG_HEAD_SIZE);
    return read_sections(p, msg);
}

char *fl_msg_get_text(const fl_msg *msg, fl_section_op op)
{
    const int bytes = __builtin_ctz(FL_COLUMN_BYTES);

    for (int i = 0; i < msg->head.n_section; i++)
        if (msg->section[i].op == op &&
            msg->section[i].columns & FL_COLUMN_BYTES)
            return fl_strndup(msg->column[i][bytes].data,
                              msg->column[i][bytes].size);
    return NULL;
}

/* --- writing -------------------------------------------------------------- */

void fl_msg_begin(fl_msg_writer *w, fl_packet_pool *pool,
                  const fl_msg_head *head)
{
    w->head = *head;
    w->answer = (fl_msg_answer){0};
    w->n_section = 0;
    w->status = fl_packet_create(pool, &w->packet);
    if (w->status == FLEET_OK &&
        !fl_packet_add(w->packet, head_size(head->kind)))
        w->status = fl_last_code();
}

fl_section *fl_msg_section(fl_msg_writer *w, fl_section_op op, uint32_t table)
{
    fl_section *s = &w->section[w->n_section];

    if (w->status == FLEET_OK && w->n_section == FL_MSG_MOST_SECTION)
        w->status = fl_fail(FLEET_EINVAL, "message: more than %d sections",
                            FL_MSG_MOST_SECTION);
    /* frame 1 has room for all; fl_msg_end() makes it as long as it is */
    if (w->status == FLEET_OK && w->n_section == 0 &&
        !fl_packet_add(w->packet, FL_MSG_MOST_SECTION * FL_MSG_SECTION_SIZE))
        w->status = fl_last_code();
    if (w->status != FLEET_OK)
        return NULL;
    *s = (fl_section){.op = (uint16_t)op, .table = table};
    w->n_section++;
    return s;
}

void *fl_msg_column(fl_msg_writer *w, int column, size_t size)
{
    fl_section *s = w->n_section ? &w->section[w->n_section - 1] : NULL;
    void *data;

    if (w->status != FLEET_OK)
        return NULL;
    if (!s || column <= s->columns || column & (column - 1) ||
        column & ~FL_COLUMNS) {
        w->status =
            fl_fail(FLEET_EINVAL, "message: no column %d after columns 0x%02x",
                    column, s ? s->columns : 0);
        return NULL;
    }
    data = fl_packet_add(w->packet, size);
    if (data)
        s->columns |= (uint8_t)column;
    else
        w->status = fl_last_code();
    return data;
}

void fl_msg_shorten(fl_msg_writer *w, size_t size)
{
    fl_packet *p = w->packet;
    fl_frame *last;

    if (w->status != FLEET_OK)
        return;
    last = &p->frame[p->n_frame - 1];
    p->bytes -= last->size - size;
    last->size = size;
}

void fl_msg_text(fl_msg_writer *w, fl_section_op op, const char *text)
{
    size_t size = strlen(text);
    void *bytes;

    fl_msg_section(w, op, 0);
    bytes = fl_msg_column(w, FL_COLUMN_BYTES, size);
    if (bytes)
        memcpy(bytes, text, size);
}

/* A section as it was, but for what fl_msg_column() sets. */
static void copy_section(fl_msg_writer *to, const fl_section *s,
                         const fl_frame *column)
{
    fl_section *copy = fl_msg_section(to, (fl_section_op)s->op, s->table);

    if (!copy)
        return;
    copy->codec = s->codec;
    copy->n_run = s->n_run;
    copy->n_key = s->n_key;
    copy->version = s->version;
    copy->learning_rate = s->learning_rate;
    copy->n_batch = s->n_batch;
    for (int i = 0; i < FL_N_COLUMN; i++) {
        void *data;

        if (!(s->columns & 1 << i))
            continue;
        data = fl_msg_column(to, 1 << i, column[i].size);
        if (data && column[i].size > 0)
            memcpy(data, column[i].data, column[i].size);
    }
}

void fl_msg_copy_sections(fl_msg_writer *w, const fl_msg *msg)
{
    for (int i = 0; i < msg->head.n_section; i++)
        copy_section(w, &msg->section[i], msg->column[i]);
}

static fleet_status write_sections(fl_msg_writer *w)
{
    fl_packet *p = w->packet;
    fl_frame column[FL_N_COLUMN];
    int next = 2;
    uint8_t *to;

    if (w->n_section == 0)
        return FLEET_OK;
    to = p->frame[1].data;
    for (int i = 0; i < w->n_section; i++) {
        FL_TRY(take_section(p, &w->section[i], i, &next, column));
        to = write_section(to, &w->section[i]);
    }
    p->bytes -= p->frame[1].size;
    p->frame[1].size = (size_t)w->n_section * FL_MSG_SECTION_SIZE;
    p->bytes += p->frame[1].size;
    return FLEET_OK;
}

static fleet_status write_all(fl_msg_writer *w, bool whole)
{
    const uint32_t magic = FL_MSG_MAGIC;
    uint8_t *first = w->packet->frame[0].data, *to;
    uint32_t sum = 0;

    if (w->packet->frame[0].size != head_size(w->head.kind))
        return fl_fail(FLEET_EINVAL, "message: begun as another kind than %d",
                       w->head.kind);
    w->head.version = FL_MSG_VERSION;
    w->head.n_section = (uint8_t)w->n_section;
    w->head.flags = (uint16_t)(w->head.flags & ~FL_MSG_CRC_ALL);
    if (whole)
        w->head.flags |= FL_MSG_CRC_ALL;
    FL_TRY(check_head(&w->head));
    FL_TRY(write_sections(w));
    memcpy(first + AT_MAGIC, &magic, sizeof magic);
    to = write_head(first + AT_HEAD, &w->head);
    memcpy(to, &sum, sizeof sum);
    if (w->head.kind == FL_MSG_ANSWER)
        write_answer(to + sizeof sum, &w->answer);
    sum = sum_of(w->packet, &w->head);
    memcpy(to, &sum, sizeof sum);
    return FLEET_OK;
}

fleet_status fl_msg_end(fl_msg_writer *w, bool whole, fl_packet **packet)
{
    if (w->status == FLEET_OK)
        w->status = write_all(w, whole);
    *packet = w->packet;
    if (w->status != FLEET_OK) {
        fl_packet_drop(w->packet);
        *packet = NULL;
    }
    w->packet = NULL;
    return w->status;
}
