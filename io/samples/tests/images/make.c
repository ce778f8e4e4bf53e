/* Makes the JPEG files beside it with libjpeg: cc make.c -ljpeg && ./a.out */
#include <stdio.h>
#include <jpeglib.h>

enum { WIDTH = 61, HEIGHT = 45 };

static void make(const char *name, int channels, int across, int down, int is_progressive, int restart_interval) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    FILE *file = fopen(name, "wb");
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = WIDTH;
    jpeg.image_height = HEIGHT;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 85, TRUE);
    jpeg.comp_info[0].h_samp_factor = across;
    jpeg.comp_info[0].v_samp_factor = down;
    jpeg.restart_interval = restart_interval;
    jpeg.optimize_coding = channels == 1;
    if (is_progressive) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < HEIGHT; y++) {
        unsigned char pixels[3 * WIDTH];
        for (int x = 0; x < WIDTH; x++) {
            int red = x * 255 / WIDTH, green = y * 255 / HEIGHT, blue = (x / 8 + y / 8) & 1 ? 200 : 40;
            if (channels == 1) {
                pixels[x] = (red + green) / 2;
            } else {
                pixels[3 * x] = red, pixels[3 * x + 1] = green, pixels[3 * x + 2] = blue;
            }
        }
        JSAMPROW row = pixels;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    fclose(file);
}

int main(void) {
    make("sampled-420.jpg", 3, 2, 2, 0, 0);
    make("restarts-422.jpg", 3, 2, 1, 0, 2);
    make("progressive-420.jpg", 3, 2, 2, 1, 0);
    make("grey-optimized.jpg", 1, 1, 1, 0, 0);
    return 0;
}
