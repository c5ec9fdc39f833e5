/* png_file.c - by libpng's calls for whole pictures. */
#include "png_file.h"

#include <png.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

static fleet_status encode(const canvas *c, void **bytes, size_t *size)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)c->width,
                       .height = (png_uint_32)c->height,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(image);

    FL_TRY(FL_NEW(bytes, n));
    if (png_image_write_to_memory(&image, *bytes, &n, 0, c->pixel, 0, NULL)) {
        *size = n;
        return FLEET_OK;
    }
    return fl_fail(FLEET_EIO, "cannot make a PNG: %s", image.message);
}

/* A path that is no file, or a link to one, as /dev/stdout is, stays. */
static fleet_status write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "we");
    struct stat is;
    int why = errno;
    bool good;

    if (!file)
        return fl_fail(FLEET_EIO, "cannot make %s: %s", path, strerror(why));
    errno = 0;
    good = fwrite(bytes, 1, size, file) == size;
    why = errno;
    if (fclose(file) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good)
        return FLEET_OK;
    if (truncate(path, 0) == 0 && lstat(path, &is) == 0 && S_ISREG(is.st_mode))
        unlink(path);
    return fl_fail(FLEET_EIO, "cannot write %s: %s", path, strerror(why));
}

fleet_status png_file_write(const canvas *c, const char *path)
{
    void *bytes = NULL;
    size_t size = 0;
    fleet_status status = encode(c, &bytes, &size);

    if (status == FLEET_OK)
        status = write_file(path, bytes, size);
    fl_free(bytes);
    return status;
}
