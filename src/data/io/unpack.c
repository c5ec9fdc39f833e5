/* unpack.c - plain files by read(), packed ones by zlib. */
#define _GNU_SOURCE
#include "data/io/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/io/fd.h"

enum {
    PACKED_PIECE = 256 << 10,
    GZIP_ONLY = 16 + MAX_WBITS, /* what inflateInit2() takes for it */
    GZIP_MAGIC = 0x1f
};

struct fl_unpack {
    const char *path;
    int fd;
    off_t size;           /* of the file, when it was opened */
    bool special, waits;  /* it may be no regular file, and it is none */
    int wakeup;           /* ends its waiting */
    int64_t timeout_ms;   /* so does a silence of that length; 0: none does */
    unsigned char *piece; /* packed bytes; NULL for a plain file */
    z_stream z;
    bool in_member; /* a .gz is members, one after the other */
    bool any;       /* a member has begun */
};

bool fl_is_packed(const char *path)
{
    size_t n = strlen(path);

    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

static fleet_status io_failed(const char *what, const char *path)
{
    fleet_status code = errno == ENOENT ? FLEET_ENOENT : FLEET_EIO;

    return fl_fail(code, "cannot %s %s: %s", what, path, strerror(errno));
}

static bool is_standard_input(const fl_unpack *u)
{
    return u->special && strcmp(u->path, "-") == 0;
}

static int open_path(const fl_unpack *u)
{
    return is_standard_input(u)
               ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
               : open(u->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Anything but a regular file could block a reader that has to end: it is
 * waited for. */
static fleet_status open_file(fl_unpack *u)
{
    struct stat st;

    u->fd = fl_fd_lift(open_path(u));
    if (u->fd < 0 || fstat(u->fd, &st) != 0)
        return io_failed("open", u->path);
    u->waits = u->special && !S_ISREG(st.st_mode);
    if (S_ISDIR(st.st_mode) || !(u->waits || S_ISREG(st.st_mode)))
        return fl_fail(FLEET_EIO, "cannot read %s: %s", u->path,
                       u->special ? "it is a folder" : "not a regular file");
    u->size = st.st_size;
    if (!is_standard_input(u))    /* which other processes may have, too */
        fcntl(u->fd, F_SETFL, 0); /* a command may read from it */
    posix_fadvise(u->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* a hint: may fail */
    return FLEET_OK;
}

static voidpf z_alloc(voidpf opaque, uInt n, uInt size)
{
    (void)opaque;
    return fl_alloc_array(n, size);
}

static void z_free(voidpf opaque, voidpf p)
{
    (void)opaque;
    fl_free(p);
}

static fleet_status start_inflate(fl_unpack *u)
{
    FL_TRY(FL_NEW(&u->piece, PACKED_PIECE));
    u->z.zalloc = z_alloc;
    u->z.zfree = z_free;
    if (inflateInit2(&u->z, GZIP_ONLY) == Z_OK)
        return FLEET_OK;
    fl_free(u->piece);
    u->piece = NULL; /* so that close does not end what never began */
    return fl_fail(FLEET_ENOMEM, "out of memory: to unpack %s", u->path);
}

static fleet_status open_as(fl_unpack **unpack, const fl_unpack *how)
{
    fleet_status status;
    fl_unpack *u;

    FL_TRY(FL_NEW(&u, sizeof *u));
    *u = *how;
    u->fd = -1;
    status = open_file(u);
    if (status == FLEET_OK && fl_is_packed(u->path))
        status = start_inflate(u);
    if (status != FLEET_OK) {
        fl_unpack_close(u);
        return status;
    }
    *unpack = u;
    return FLEET_OK;
}

fleet_status fl_unpack_open(fl_unpack **unpack, const char *path)
{
    return open_as(unpack, &(fl_unpack){.path = path, .wakeup = -1});
}

fleet_status fl_unpack_open_any(fl_unpack **unpack, const char *path,
                                int wakeup, int64_t timeout_ms)
{
    return open_as(unpack, &(fl_unpack){.path = path,
                                        .special = true,
                                        .wakeup = wakeup,
                                        .timeout_ms = timeout_ms});
}

fleet_status fl_unpack_check_text(const fl_unpack *u)
{
    static const struct {
        const char *bytes, *name, *hint;
    } packed[] = {
        {"\x1f\x8b\x08", "gzip", "name it .gz"},
        {"\x28\xb5\x2f\xfd", "zstd",
         "unpack it, or set pipe_command \"zstd -dc\""},
        {"\xfd"
         "7zXZ",
         "xz", "unpack it, or set pipe_command \"xz -dc\""},
        {"BZh91AY&SY", "bzip2", "unpack it, or set pipe_command \"bzip2 -dc\""},
        {"PK\x03\x04", "zip", "unpack it"},
    };
    char begin[16] = "";

    if (u->piece || pread(u->fd, begin, sizeof begin - 1, 0) < 0)
        return FLEET_OK; /* reading it says why */
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (strncmp(begin, packed[i].bytes, strlen(packed[i].bytes)) == 0)
            return fl_fail(FLEET_EUNSUPPORTED, "%s is packed by %s: %s",
                           u->path, packed[i].name, packed[i].hint);
    return FLEET_OK;
}

fleet_status fl_unpack_wait(const fl_unpack *u)
{
    fleet_status status;

    if (!u->waits)
        return FLEET_OK;
    status = fl_fd_wait(u->fd, POLLIN, u->wakeup, -1, u->timeout_ms);
    return status != FLEET_ETIMEDOUT
               ? status
               : fl_fail(status,
                         "%s: nothing has come for %lld ms (pipe_timeout_ms)",
                         u->path, (long long)u->timeout_ms);
}

static fleet_status read_file(fl_unpack *u, void *to, size_t size, size_t *got)
{
    ssize_t n;

    do {
        FL_TRY(fl_unpack_wait(u));
        n = read(u->fd, to, size);
    } while (n < 0 && (errno == EINTR || (u->waits && errno == EAGAIN)));
    if (n < 0)
        return io_failed("read", u->path);
    *got = (size_t)n;
    return FLEET_OK;
}

static fleet_status fail_damaged(const fl_unpack *u, const char *how)
{
    return fl_fail(FLEET_ECORRUPT, "%s: damaged .gz file: %s", u->path, how);
}

/* More packed bytes; *end: the file has none. */
static fleet_status refill_input(fl_unpack *u, bool *end)
{
    size_t got = 0;

    *end = false;
    if (u->z.avail_in > 0)
        return FLEET_OK;
    FL_TRY(read_file(u, u->piece, PACKED_PIECE, &got));
    u->z.next_in = u->piece;
    u->z.avail_in = (uInt)got;
    *end = got == 0;
    return *end && (u->in_member || !u->any) ? fail_damaged(u, "it is cut off")
                                             : FLEET_OK;
}

/* Between two members: zeros that fill up a block are passed over. */
static fleet_status begin_member(fl_unpack *u)
{
    while (u->any && u->z.avail_in > 0 && *u->z.next_in == 0) {
        u->z.next_in++;
        u->z.avail_in--;
    }
    if (u->z.avail_in == 0)
        return FLEET_OK;
    if (u->any && *u->z.next_in != GZIP_MAGIC)
        return fail_damaged(u, "other bytes follow its end");
    u->any = u->in_member = true;
    inflateReset(&u->z);
    return FLEET_OK;
}

static fleet_status inflate_some(fl_unpack *u)
{
    switch (inflate(&u->z, Z_NO_FLUSH)) {
    case Z_STREAM_END:
        u->in_member = false;
        return FLEET_OK;
    case Z_OK:
    case Z_BUF_ERROR: /* it wants more bytes */
        return FLEET_OK;
    case Z_MEM_ERROR:
        return fl_fail(FLEET_ENOMEM, "out of memory: to unpack %s", u->path);
    default:
        return fail_damaged(u, u->z.msg ? u->z.msg : "it cannot be unpacked");
    }
}

static fleet_status unpack_some(fl_unpack *u, void *to, size_t size,
                                size_t *got)
{
    const uInt room = size > 1 << 30 ? 1 << 30 : (uInt)size;
    bool end;

    u->z.next_out = to;
    u->z.avail_out = room;
    do {
        FL_TRY(refill_input(u, &end));
        if (!end && !u->in_member)
            FL_TRY(begin_member(u));
        if (!end && u->in_member)
            FL_TRY(inflate_some(u));
    } while (!end && u->z.avail_out == room);
    *got = room - u->z.avail_out;
    return FLEET_OK;
}

fleet_status fl_unpack_read(fl_unpack *u, void *to, size_t size, size_t *got)
{
    return u->piece ? unpack_some(u, to, size, got)
                    : read_file(u, to, size, got);
}

double fl_unpack_share(const fl_unpack *u)
{
    off_t at = lseek(u->fd, 0, SEEK_CUR);

    return at >= 0 && at < u->size ? (double)at / (double)u->size : 1;
}

int fl_unpack_fd(const fl_unpack *u)
{
    return u->fd;
}

void fl_unpack_close(fl_unpack *u)
{
    if (!u)
        return;
    if (u->piece)
        inflateEnd(&u->z);
    fl_fd_close(&u->fd);
    fl_free(u->piece);
    fl_free(u);
}
