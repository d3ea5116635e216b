// Resizes and crops decoded images as Pillow does it, bit for bit: weights in fixed point of 22 bits, first along the
// rows, then along the columns, rounded to 8 bits after each. Where Pillow begins with the columns, the image comes
// with its rows and columns exchanged. `python engines/compile_kernels.py` compiles it to resize.ptx.

struct Image {
    unsigned long long base;              // where the upright image's first pixel lies
    long long step_x, step_y;             // bytes to the next pixel of a row, and of a column
    long long temp;                       // where its rows begin in the memory between the two passes
    int width, height;                    // of the upright image
    int out_width, out_height;            // of the resized image, of which a square is kept
    int left, top;                        // of that square
    int first, rows;                      // the rows of the upright image that are needed
    int place, turned;                    // its number in the batch; whether rows and columns have changed places
};

__device__ static double filter_at(int kind, double x) {
    const double a = -0.5;
    if (x < 0.0) x = -x;
    if (kind == 1) return x < 1.0 ? 1.0 - x : 0.0;                           // bilinear
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;           // bicubic
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    return 0.0;
}

__device__ static unsigned char clipped(int sum) {
    const int value = sum >> 22;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Where an output pixel's inputs begin, how many they are, and their weights; axis 0 is along a row.
extern "C" __global__ void weights(const Image *images, int side, int taps, int kind, int *table) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, axis = blockIdx.y;
    if (i >= side) return;
    const Image image = images[blockIdx.z];
    const int in = axis ? image.height : image.width, out = axis ? image.out_height : image.out_width;
    const double scale = (double)in / out, stretch = scale < 1.0 ? 1.0 : scale, inverse = 1.0 / stretch;
    const double support = (kind == 1 ? 1.0 : 2.0) * stretch;
    const double centre = ((axis ? image.top : image.left) + i + 0.5) * scale;
    int start = (int)(centre - support + 0.5), stop = (int)(centre + support + 0.5);
    if (start < 0) start = 0;
    if (stop > in) stop = in;
    int *entry = table + ((long long)(blockIdx.z * 2 + axis) * side + i) * (taps + 2);
    double total = 0.0;
    for (int tap = 0; tap < stop - start; tap++) total += filter_at(kind, (tap + start - centre + 0.5) * inverse);
    entry[0] = start;
    entry[1] = stop - start;
    for (int tap = 0; tap < stop - start; tap++) {
        double weight = filter_at(kind, (tap + start - centre + 0.5) * inverse);
        if (total != 0.0) weight /= total;
        entry[2 + tap] = (int)((weight < 0.0 ? -0.5 : 0.5) + weight * (1 << 22));
    }
}

extern "C" __global__ void along_rows(const Image *images, int side, int taps, const int *table, unsigned char *temp) {
    const Image image = images[blockIdx.y];
    const int at = blockIdx.x * blockDim.x + threadIdx.x, row = at / side, x = at % side;
    if (row >= image.rows) return;
    const int *entry = table + ((long long)(blockIdx.y * 2) * side + x) * (taps + 2);
    const unsigned char *pixel = (const unsigned char *)image.base + (row + image.first) * image.step_y
                                 + entry[0] * image.step_x;
    int red = 1 << 21, green = 1 << 21, blue = 1 << 21;
    for (int tap = 0; tap < entry[1]; tap++, pixel += image.step_x) {
        const int weight = entry[2 + tap];
        red += pixel[0] * weight;
        green += pixel[1] * weight;
        blue += pixel[2] * weight;
    }
    unsigned char *target = temp + image.temp + 3LL * at;
    target[0] = clipped(red);
    target[1] = clipped(green);
    target[2] = clipped(blue);
}

extern "C" __global__ void along_columns(const Image *images, int side, int taps, const int *table,
                                         const unsigned char *temp, unsigned char *out) {
    const Image image = images[blockIdx.y];
    const int at = blockIdx.x * blockDim.x + threadIdx.x, width = 3 * side, y = at / width, x = at % width;
    if (y >= side) return;
    const int *entry = table + ((long long)(blockIdx.y * 2 + 1) * side + y) * (taps + 2);
    const unsigned char *pixel = temp + image.temp + (long long)(entry[0] - image.first) * width + x;
    int sum = 1 << 21;
    for (int tap = 0; tap < entry[1]; tap++, pixel += width) sum += *pixel * entry[2 + tap];
    const int target = image.turned ? (x / 3 * side + y) * 3 + x % 3 : at;
    out[(long long)image.place * side * width + target] = clipped(sum);
}
