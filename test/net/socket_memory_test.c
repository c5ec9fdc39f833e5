/* socket_memory_test.c - ZeroMQ, which ends the process when it gets no memory,
 * is called only where there is some: sockets work, or are FLEET_ENOMEM. */
#define SUITE socket_memory
#include "memory_kit.h"
#include "net_kit.h"
#include "test.h"

#include <stdlib.h>

#include "base/memory.h"

/* Two sockets that have spoken, or what kept them from it. */
static fleet_status talk(void)
{
    fl_socket *server = NULL, *client = NULL;
    char bound[FL_ADDRESS_SIZE];
    fl_packet *sent, *got = NULL;

    FL_TRY(fl_packet_pool_create(&net_pool, 1 << 20));
    FL_TRY(fl_socket_listen(&server));
    FL_TRY(fl_socket_bind(server, "tcp://127.0.0.1:0", -1, bound));
    FL_TRY(fl_socket_connect(&client, bound));
    FL_TRY(fl_packet_create(net_pool, &sent));
    if (!fl_packet_add(sent, 100 << 10))
        return fl_last_code();
    FL_TRY(fl_socket_send(client, NULL, sent));
    while (!got) {
        FL_TRY(fl_socket_wait(&server, 1, NULL, 1000));
        FL_TRY(fl_socket_receive(server, NULL, &got));
    }
    fl_packet_drop(got);
    fl_packet_drop(sent);
    fl_socket_close(client, 0);
    fl_socket_close(server, 0);
    return FLEET_OK;
}

static void open_first(void)
{
    fl_socket *first;

    CHECK_OK(fl_socket_listen(&first));
}

static size_t room;

/* The host has taken all; so much of it is free again. */
static fleet_status talk_in_little_room(void)
{
    volatile char *last = malloc(room);

    for (size_t size = 1 << 20; size >= 16; size /= 2)
        while (malloc(size))
            ;
    free((void *)(uintptr_t)last);
    return talk();
}

TEST(further_sockets_are_refused_when_the_host_has_taken_all)
{
    for (room = 16 << 10; room <= 1 << 20; room += room / 4)
        CHECK_INT(memory_sweep(open_first, talk_in_little_room, 0, 1).refused,
                  1);
}

TEST(sockets_work_or_are_refused_with_any_memory)
{
    memory_ends ends = memory_sweep(NULL, talk, 320 << 20, 2 << 20);

    CHECK(ends.refused > 10);
    CHECK(ends.fine > 10);
}
