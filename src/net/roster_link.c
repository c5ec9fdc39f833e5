/* roster_link.c - keys for the link, and packets of one frame, which is a
 * message's text. */
#include "net/roster_link.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { MOST_BYTES = 1 << 20, IDLE_BYTES = 1 << 16 };

/* --- the link ------------------------------------------------------------- */

fleet_status fl_roster_link_listen(fl_roster_link *l, const char *address,
                                   const char *keys, int fd, bool servers)
{
    fleet_status status = fl_packet_pool_create(&l->pool, IDLE_BYTES);

    if (status == FLEET_OK && keys)
        status = fl_keys_read(&l->keys, keys, true, 0);
    if (status == FLEET_OK && keys)
        status = fl_guard_create(&l->guard, l->keys);
    if (status == FLEET_OK && keys && servers)
        fl_guard_let_in_servers(l->guard);
    if (status == FLEET_OK)
        status = fl_socket_listen(&l->socket);
    if (status == FLEET_OK && keys)
        status = fl_socket_guard(l->socket, l->guard);
    if (status == FLEET_OK)
        status = fl_socket_bind(l->socket, address, fd, NULL);
    if (status != FLEET_OK && fd >= 0)
        close(fd);
    return status;
}

fleet_status fl_roster_link_connect(fl_roster_link *l, const char *address,
                                    fl_keys *keys)
{
    l->keys = keys;
    FL_TRY(fl_packet_pool_create(&l->pool, IDLE_BYTES));
    return fl_socket_connect_brief(&l->socket, address, l->keys, 0);
}

void fl_roster_link_close(fl_roster_link *l, int linger_ms)
{
    fl_socket_close(l->socket, linger_ms);
    fl_guard_destroy(l->guard);
    fl_keys_destroy(l->keys);
    fl_packet_pool_destroy(l->pool);
    *l = (fl_roster_link){0};
}

bool fl_roster_link_lets_in(const fl_roster_link *l, const fl_peer *from)
{
    return !l->guard ||
           (from->sender > 0 && from->sender < FL_GUARD_SUBSCRIBER) ||
           (from->sender >= FL_GUARD_SERVER && from->sender < FL_GUARD_CONTROL);
}

fleet_status fl_roster_link_wait(fl_roster_link *l, int ms)
{
    return fl_socket_wait(&l->socket, 1, NULL, ms);
}

/* --- messages ------------------------------------------------------------- */

fleet_status fl_roster_link_send(fl_roster_link *l, const fl_peer *to,
                                 const fl_roster_message *m)
{
    fl_text text = {0};
    fl_packet *packet = NULL;
    fleet_status status;
    void *frame = NULL;

    fl_roster_message_write(m, &text);
    status = text.status;
    if (status == FLEET_OK)
        status = fl_packet_create(l->pool, &packet);
    if (status == FLEET_OK)
        frame = fl_packet_add(packet, text.length);
    if (frame) {
        memcpy(frame, fl_text_chars(&text), text.length);
        status = fl_socket_send(l->socket, to, packet);
        if (status == FLEET_ENOENT) /* it may come again, or is silent */
            status = FLEET_OK;
    } else if (status == FLEET_OK) {
        status = FLEET_ENOMEM;
    }
    fl_packet_drop(packet);
    fl_text_done(&text);
    return status;
}

fleet_status fl_roster_link_receive(fl_roster_link *l, fl_peer *from,
                                    fl_roster_message *m, char **text)
{
    fl_packet *p;

    for (;;) {
        *text = NULL;
        FL_TRY(fl_socket_receive(l->socket, from, &p));
        if (!p)
            return FLEET_OK;
        if (p->n_frame == 1 && p->frame[0].size < MOST_BYTES) {
            *text = fl_strndup(p->frame[0].data, p->frame[0].size);
            if (!*text) {
                fl_packet_drop(p);
                return FLEET_ENOMEM;
            }
        }
        fl_packet_drop(p);
        if (*text && fl_roster_message_read(m, *text))
            return FLEET_OK;
        fl_free(*text);
    }
}
