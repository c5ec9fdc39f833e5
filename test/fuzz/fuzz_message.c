/* fuzz_message.c - any frames as a message. The input is a list of frames: two
 * bytes for the size, little-endian, then so many bytes; the last one may be
 * cut. Its first byte says whether the sum is made right, so that what it
 * protects is reached. What is read is written again, and is the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "net/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { AT_FLAGS = 6, AT_SUM = 60 };

static void must(bool so)
{
    if (!so)
        abort();
}

/* Each in a block of its size, so that a byte too much is seen. */
static void cut(fl_packet *p, const uint8_t *data, size_t size)
{
    while (size >= 2 && p->n_frame < FL_MOST_FRAME) {
        size_t n = data[0] + 256u * data[1];

        data += 2;
        size -= 2;
        n = n < size ? n : size;
        p->frame[p->n_frame] = (fl_frame){malloc(n ? n : 1), n};
        must(p->frame[p->n_frame].data != NULL);
        memcpy(p->frame[p->n_frame++].data, data, n);
        data += n;
        size -= n;
    }
}

static void make_sum(const fl_packet *p)
{
    uint8_t *head = p->n_frame ? p->frame[0].data : NULL;
    uint32_t sum = 0;
    int n;

    if (!head || p->frame[0].size < FL_MSG_HEAD_SIZE)
        return;
    n = head[AT_FLAGS] & FL_MSG_CRC_ALL ? p->n_frame : 2;
    memset(head + AT_SUM, 0, sizeof sum);
    for (int i = 0; i < n && i < p->n_frame; i++)
        sum = fl_crc32c(sum, p->frame[i].data, p->frame[i].size);
    memcpy(head + AT_SUM, &sum, sizeof sum);
}

static void write_section(fl_msg_writer *w, const fl_msg *msg, int i)
{
    const fl_section *from = &msg->section[i];
    fl_section *s = fl_msg_section(w, (fl_section_op)from->op, from->table);
    uint8_t columns = from->columns;

    must(s != NULL);
    *s = *from;
    s->columns = 0;
    for (int bit = 0; bit < FL_N_COLUMN; bit++)
        if (columns >> bit & 1) {
            const fl_frame *f = &msg->column[i][bit];
            void *to = fl_msg_column(w, 1 << bit, f->size);

            must(to != NULL && f->data != NULL);
            memcpy(to, f->data, f->size);
        }
}

static void check_same(const fl_packet *p, const fl_packet *q)
{
    must(p->n_frame == q->n_frame);
    for (int i = 0; i < p->n_frame; i++)
        must(p->frame[i].size == q->frame[i].size &&
             memcmp(p->frame[i].data, q->frame[i].data, p->frame[i].size) == 0);
}

static void write_again(const fl_msg *msg, const fl_packet *p)
{
    static fl_packet_pool *pool;
    static fl_msg_writer w;
    fl_packet *q;

    must(pool || fl_packet_pool_create(&pool, 1 << 20) == FLEET_OK);
    fl_msg_begin(&w, pool, &msg->head);
    w.answer = msg->answer;
    for (int i = 0; i < msg->head.n_section; i++)
        write_section(&w, msg, i);
    must(fl_msg_end(&w, msg->head.flags & FL_MSG_CRC_ALL, &q) == FLEET_OK);
    check_same(p, q);
    fl_packet_drop(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fl_frame frame[FL_MOST_FRAME];
    static fl_msg msg;
    fl_packet p = {.frame = frame};
    fleet_status status;

    if (size == 0)
        return 0;
    cut(&p, data + 1, size - 1);
    if (data[0] & 1)
        make_sum(&p);
    status = fl_msg_decode(&p, &msg);
    must(status == FLEET_OK || status == FLEET_EFORMAT ||
         status == FLEET_EUNSUPPORTED);
    if (status == FLEET_OK)
        write_again(&msg, &p);
    for (int i = 0; i < p.n_frame; i++)
        free(frame[i].data);
    return 0;
}
