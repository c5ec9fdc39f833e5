/* fuzz_save.c - any bytes as a save: up to the first zero byte the manifest,
 * after it a part. The checksums are made right, so that what they protect is
 * reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/save/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void remove_folder(void)
{
    static const char *const names[] = {FL_MANIFEST, FL_MANIFEST_SUM,
                                        "part-00000"};
    char path[128];

    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void write_file(const char *name, const void *data, size_t size)
{
    char path[128];
    FILE *f;

    if (!*folder) {
        strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/fuzz-save.XXXXXX"
                                                : "/dev/shm/fuzz-save.XXXXXX");
        if (!mkdtemp(folder))
            abort();
        atexit(remove_folder);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "wb");
    if (!f || (size && fwrite(data, 1, size, f) != size) || fclose(f))
        abort();
}

/* "parts" says what the part really is, unless the manifest says something. */
static void add_parts(fl_json *manifest, const void *part, size_t size)
{
    fl_at root = fl_at_root(manifest), there = fl_at_key(&root, "parts");
    fl_json *list = fl_json_array(), *entry = fl_json_object();

    if (there.json) {
        fl_json_free(list);
        fl_json_free(entry);
        return;
    }
    fl_json_put(entry, "file", fl_json_string("part-00000"));
    fl_json_put(entry, "size", fl_json_int((int64_t)size));
    fl_json_put(entry, "xxh64", fl_json_hex(fl_hash(part, size, 0)));
    fl_json_append(list, entry);
    fl_json_put(manifest, "parts", list);
}

static void write_manifest(fl_json *manifest)
{
    char *text = fl_json_print(manifest, false), sum[20];

    if (!text)
        return;
    snprintf(sum, sizeof sum, "%016llx\n",
             (unsigned long long)fl_hash(text, strlen(text), 0));
    write_file(FL_MANIFEST, text, strlen(text));
    write_file(FL_MANIFEST_SUM, sum, 17);
    fl_free(text);
}

static fleet_status unused(void *arg, fl_saved *saved)
{
    return arg || !saved ? FLEET_EINVAL : FLEET_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    const uint8_t *part = zero ? zero + 1 : data + size;
    fl_json *manifest;

    if (fl_json_parse((const char *)data, n, "fuzz", &manifest) != FLEET_OK)
        return 0;
    add_parts(manifest, part, size - (size_t)(part - data));
    write_manifest(manifest);
    fl_json_free(manifest);
    write_file("part-00000", part, size - (size_t)(part - data));
    fl_saved_use(folder, NULL, unused, NULL);
    fleet_predictor_destroy(fleet_load_inference_model(folder));
    return 0;
}
