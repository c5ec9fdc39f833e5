/* net_kit.c - see net_kit.h. */
#define _GNU_SOURCE
#define SUITE net_kit
#include "net_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

fl_packet_pool *net_pool;

void net_open_pool(void)
{
    CHECK_OK(fl_packet_pool_create(&net_pool, 64 << 20));
}

void net_close_pool(void)
{
    fl_packet_pool_destroy(net_pool);
    net_pool = NULL;
}

/* --- sockets -------------------------------------------------------------- */

fl_socket *net_listen(const char *address, char bound[FL_ADDRESS_SIZE])
{
    fl_socket *s;

    if (!net_pool)
        net_open_pool();
    CHECK_OK(fl_socket_listen(&s));
    CHECK_OK(fl_socket_bind(s, address, -1, bound));
    return s;
}

fl_socket *net_connect(const char *address)
{
    fl_socket *s;

    CHECK_OK(fl_socket_connect(&s, address));
    return s;
}

void net_end(fl_socket *a, fl_socket *b)
{
    fl_socket_close(a, 0);
    fl_socket_close(b, 0);
    net_close_pool();
}

void net_fill(fl_packet *p, size_t size, unsigned seed)
{
    uint32_t *word = fl_packet_add(p, size);

    CHECK(word != NULL);
    for (size_t i = 0; i < size / 4; i++)
        word[i] = (uint32_t)i * 2654435761u + seed;
}

void net_check_filled(const fl_frame *f, size_t size, unsigned seed)
{
    CHECK_INT(f->size, size);
    for (size_t i = 0; i < size / 4; i++) {
        uint32_t word;

        memcpy(&word, (uint8_t *)f->data + 4 * i, 4);
        if (word != (uint32_t)i * 2654435761u + seed)
            test_fail(__FILE__, __LINE__, "word %zu of %zu bytes", i, size);
    }
}

void net_send(fl_socket *s, const fl_peer *to, size_t size, unsigned seed)
{
    fl_packet *p;

    CHECK_OK(fl_packet_create(net_pool, &p));
    net_fill(p, size, seed);
    CHECK_OK(fl_socket_send(s, to, p));
    fl_packet_drop(p);
}

fl_packet *net_receive(fl_socket *s, fl_peer *from)
{
    const int64_t end = fl_now_ms() + NET_WAIT;
    fl_packet *p;

    do {
        CHECK(fl_now_ms() < end);
        CHECK_OK(fl_socket_wait(&s, 1, NULL, NET_WAIT));
        CHECK_OK(fl_socket_receive(s, from, &p));
    } while (!p);
    CHECK_INT(p->refs, 1);
    return p;
}

void net_check_received(fl_socket *s, fl_peer *from, size_t size, unsigned seed)
{
    fl_packet *p = net_receive(s, from);

    CHECK_INT(p->n_frame, 1);
    CHECK_INT(p->bytes, size);
    net_check_filled(p->frame, size, seed);
    fl_packet_drop(p);
}

void net_talk(fl_socket *server, fl_socket *client, unsigned seed)
{
    fl_peer peer;

    net_send(client, NULL, 40, seed);
    net_check_received(server, &peer, 40, seed);
    net_send(server, &peer, 80, seed + 1);
    net_check_received(client, NULL, 80, seed + 1);
}

/* --- messages ------------------------------------------------------------- */

void net_fill_bytes(uint8_t *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(rand_r(&seed) >> 7);
}

const fl_msg_head net_head = {.kind = FL_MSG_STEP,
                              .flags = FL_MSG_END_OF_STEP,
                              .job = 0x1122334455667788,
                              .generation = 3,
                              .view = 4,
                              .stream = 5,
                              .incarnation = 6,
                              .step = 7000000000,
                              .request = 0xfedcba9876543210,
                              .peer = 9,
                              .timeout_ms = 30000,
                              .piece = 11};

void net_check_head(const fl_msg_head *got, const fl_msg_head *want)
{
    CHECK_INT(got->version, FL_MSG_VERSION);
    CHECK_INT(got->kind, want->kind);
    CHECK_INT(got->job, want->job);
    CHECK_INT(got->generation, want->generation);
    CHECK_INT(got->view, want->view);
    CHECK_INT(got->stream, want->stream);
    CHECK_INT(got->incarnation, want->incarnation);
    CHECK_INT(got->step, want->step);
    CHECK_INT(got->request, want->request);
    CHECK_INT(got->peer, want->peer);
    CHECK_INT(got->timeout_ms, want->timeout_ms);
    CHECK_INT(got->piece, want->piece);
    CHECK_INT(got->status, want->status);
}

/* A column of a section with 2 runs and 3 keys. */
static size_t size_of(int column)
{
    static const size_t size[FL_N_COLUMN] = {16, 24, 12, 72, 24, 5};

    return size[__builtin_ctz((unsigned)column)];
}

void net_add_section(fl_msg_writer *w, int op, int columns)
{
    fl_section *s = fl_msg_section(w, (fl_section_op)op, (uint32_t)op + 100);

    CHECK(s != NULL);
    s->n_run = columns & FL_COLUMN_RUNS ? 2 : 0;
    s->n_key = 3;
    s->version = 12345678901;
    s->learning_rate = 0.25f;
    s->n_batch = 2;
    for (int column = 1; column < FL_COLUMNS; column <<= 1)
        if (columns & column)
            memset(fl_msg_column(w, column, size_of(column)), op + column,
                   size_of(column));
}

void net_check_section(const fl_msg *msg, int i, int op, int columns)
{
    const fl_section *s = &msg->section[i];

    CHECK_INT(s->op, op);
    CHECK_INT(s->table, op + 100);
    CHECK_INT(s->codec, 0);
    CHECK_INT(s->columns, columns);
    CHECK_INT(s->n_run, columns & FL_COLUMN_RUNS ? 2 : 0);
    CHECK_INT(s->n_key, 3);
    CHECK_INT(s->version, 12345678901);
    CHECK(s->learning_rate == 0.25f);
    CHECK_INT(s->n_batch, 2);
    for (int bit = 0; bit < FL_N_COLUMN; bit++) {
        const fl_frame *c = &msg->column[i][bit];

        CHECK_INT(c->data != NULL, (columns >> bit) & 1);
        CHECK_INT(c->size, c->data ? size_of(1 << bit) : 0);
        for (size_t k = 0; k < c->size; k++)
            CHECK_INT(((uint8_t *)c->data)[k], op + (1 << bit));
    }
}

fl_packet *net_sample(int kind, bool whole)
{
    fl_msg_head head = net_head;
    fl_msg_writer w;
    fl_packet *p;

    head.kind = (uint8_t)kind;
    head.status = kind == FL_MSG_ANSWER ? FL_ANSWER_WAITING : 0;
    fl_msg_begin(&w, net_pool, &head);
    w.answer = (fl_msg_answer){70, 60, 1 << 20, 8};
    for (int op = 1; op < FL_SECTION_OPS; op++)
        net_add_section(&w, op, op * 11 % 64);
    CHECK_OK(fl_msg_end(&w, whole, &p));
    return p;
}
