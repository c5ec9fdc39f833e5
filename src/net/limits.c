/* limits.c - each limit is found out by trying: descriptors opened, threads
 * started. */
#include "net/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"

bool fl_descriptors_left(int n)
{
    int fd[64], got = 0;

    while (got < n && got < 64 && (fd[got] = eventfd(0, EFD_CLOEXEC)) >= 0)
        got++;
    for (int i = 0; i < got; i++)
        close(fd[i]);
    return got == n;
}

int fl_descriptors_limit(bool raise)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return INT_MAX;
    if (raise && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur > INT_MAX ? INT_MAX : (int)limit.rlim_cur;
}

int fl_descriptors_free(void)
{
    int limit = fl_descriptors_limit(false), n = 0;
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *e;

    if (!dir)
        return errno == EMFILE ? 0 : INT_MAX;
    while ((e = readdir(dir)))
        n += *e->d_name != '.' && atoi(e->d_name) < limit;
    closedir(dir);
    return limit + 1 - n; /* one was of the folder itself */
}

static void *wait_for(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

fleet_status fl_threads_hold(fl_hold *h, int n)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_lock(&h->lock);
    for (h->n = 0; status == FLEET_OK && h->n < n; h->n += status == FLEET_OK)
        status =
            fl_thread_start(&h->thread[h->n], wait_for, &h->lock, "ZeroMQ");
    if (status != FLEET_OK)
        fl_threads_release(h);
    return status;
}

void fl_threads_release(fl_hold *h)
{
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < h->n; i++)
        pthread_join(h->thread[i], NULL);
    pthread_mutex_destroy(&h->lock);
}

static int read_option(int fd, int name)
{
    int value = -1;
    socklen_t size = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &size) ? -1 : value;
}

bool fl_descriptor_listens(int fd)
{
    return read_option(fd, SO_ACCEPTCONN) == 1 &&
           read_option(fd, SO_PROTOCOL) == IPPROTO_TCP;
}

bool fl_descriptor_is_local(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t size = sizeof a;

    if (getsockname(fd, &a.any, &size) != 0)
        return false;
    if (a.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
    return a.any.sa_family == AF_INET &&
           ntohl(a.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

void fl_descriptor_prepare(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

bool fl_port_is_sound(const char *address)
{
    const char *colon = strrchr(address, ':');
    size_t n;

    if (strncmp(address, "tcp://", 6) != 0 || strcmp(colon, ":*") == 0)
        return true;
    n = strspn(colon + 1, "0123456789");
    return n > 0 && n <= 5 && colon[1 + n] == 0 && atoi(colon + 1) <= 65535;
}

bool fl_path_is_taken(const char *address)
{
    struct stat at;

    return strncmp(address, "ipc://", 6) == 0 && lstat(address + 6, &at) == 0 &&
           !S_ISSOCK(at.st_mode);
}
