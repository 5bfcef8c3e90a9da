//! The operations on graphs on a real GPU, against those of the CPU platform. On a machine without one they print a skip.

use super::real::{Block, bound, get, gpus, put};
use super::*;
use crate::kinds::DType;
use crate::platform::cpu::CpuPlatform;
use crate::platform::graph::{Counted, Draw, GraphKernels, Neighbours, SelfLoops, Take, Weights};
use crate::platform::{Indices, Launch, Places, Table, Workspace};
use crate::span::Address;

struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 29) % bound
    }
}

/// A platform with memory that its kernels reach.
trait Bench {
    fn kernels(&self) -> &dyn GraphKernels;
    fn upload(&mut self, bytes: &[u8]) -> Address;
    fn download(&self, from: Address, bytes: usize) -> Vec<u8>;
}

#[derive(Default)]
struct OnCpu(Vec<Vec<u64>>);

impl Bench for OnCpu {
    fn kernels(&self) -> &dyn GraphKernels {
        &CpuPlatform
    }

    fn upload(&mut self, bytes: &[u8]) -> Address {
        let mut words = vec![0u64; bytes.len().div_ceil(8) + 1];
        let address = words.as_mut_ptr();
        // SAFETY: the words have room for the bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len()) };
        self.0.push(words);
        Address(address as usize)
    }

    fn download(&self, from: Address, bytes: usize) -> Vec<u8> {
        // SAFETY: a part of what was uploaded.
        unsafe { std::slice::from_raw_parts(from.0 as *const u8, bytes) }.to_vec()
    }
}

struct OnGpu<'a> {
    platform: &'a CudaPlatform,
    blocks: Vec<Block<'a>>,
}

impl Bench for OnGpu<'_> {
    fn kernels(&self) -> &dyn GraphKernels {
        self.platform
    }

    fn upload(&mut self, bytes: &[u8]) -> Address {
        let block = Block::new(self.platform, bytes.len());
        put(self.platform, block.address(), bytes);
        let address = block.address();
        self.blocks.push(block);
        address
    }

    fn download(&self, from: Address, bytes: usize) -> Vec<u8> {
        get(self.platform, from, bytes)
    }
}

fn launch_with(bench: &mut dyn Bench, bytes: usize) -> Launch {
    let address = bench.upload(&vec![0xa5; bytes]);
    Launch {
        workspace: Workspace { address, bytes },
        ..Launch::default()
    }
}

fn bytes_of(dtype: DType, values: &[i64]) -> Vec<u8> {
    match dtype {
        DType::Int => values.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect(),
        DType::Float => values
            .iter()
            .flat_map(|v| (*v as f32 / 8.0).to_le_bytes())
            .collect(),
        DType::Double => values
            .iter()
            .flat_map(|v| (*v as f64 / 8.0).to_le_bytes())
            .collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

struct Graph {
    row_pointers: Vec<i64>,
    columns: Vec<i64>,
    weights: Vec<i64>,
    centers: Vec<i64>,
}

fn graph(noise: &mut Noise, most: u64) -> Graph {
    let nodes = 400;
    let mut row_pointers = vec![0];
    for v in 0..nodes {
        let degree = match v {
            7 => 6000 + 3 * most,
            _ => noise.below(2 * most + 20),
        };
        row_pointers.push(row_pointers[v] + degree as i64);
    }
    let edges = row_pointers[nodes] as usize;
    Graph {
        columns: (0..edges).map(|_| noise.below(1 << 31) as i64).collect(),
        weights: (0..edges).map(|_| noise.below(900) as i64 - 20).collect(),
        centers: (0..200)
            .map(|i| {
                if i == 77 {
                    7
                } else {
                    noise.below(nodes as u64) as i64
                }
            })
            .collect(),
        row_pointers,
    }
}

/// How a graph is laid out and what is asked of it.
#[derive(Clone, Copy, Debug)]
struct Call {
    take: Take,
    centers: DType,
    columns: DType,
    weights: Option<DType>,
    ranks: usize,
}

/// The count, the offsets, and the outputs: neighbours, places of centers, edges.
fn sample(bench: &mut dyn Bench, graph: &Graph, call: Call) -> (Counted, [Vec<u8>; 4]) {
    let starts = |rows: usize| -> Vec<u64> {
        let mut starts: Vec<u64> = (0..call.ranks).map(|r| (rows * r / call.ranks) as u64).collect();
        starts.push(rows as u64);
        starts
    };
    let mut spread = |dtype: DType, values: &[i64]| {
        let (base, starts) = (bench.upload(&bytes_of(dtype, values)), starts(values.len()));
        let bases: Vec<Address> = starts[..call.ranks]
            .iter()
            .map(|start| base.offset_bytes(*start as usize * dtype.size_bytes()))
            .collect();
        (bases, starts, dtype, values.len() as u64)
    };
    let parts = [
        spread(DType::Int64, &graph.row_pointers),
        spread(call.columns, &graph.columns),
        spread(call.weights.unwrap_or(DType::Float), &graph.weights),
    ];
    let [row_pointers, columns, weights] = [0, 1, 2].map(|i| {
        let (bases, start_rows, dtype, rows) = &parts[i];
        Table {
            places: match call.ranks {
                1 => Places::Flat(bases[0]),
                _ => Places::Ranks { bases, start_rows },
            },
            offset_bytes: 0,
            row_stride_bytes: dtype.size_bytes(),
            rows: *rows,
            cols: 1,
            dtype: *dtype,
        }
    });
    let centers = Indices {
        address: bench.upload(&bytes_of(call.centers, &graph.centers)),
        dtype: call.centers,
        count: graph.centers.len(),
    };
    let neighbours = Neighbours::Graph {
        row_pointers: &row_pointers,
        centers: &centers,
    };
    let offset_bytes = (centers.count + 1) * 4;
    let (offsets, offsets_out) = (
        bench.upload(&vec![0; offset_bytes]),
        bench.upload(&vec![0; offset_bytes]),
    );
    let needed = bench
        .kernels()
        .sample_offsets_workspace_bytes(&neighbours)
        .unwrap();
    let launch = launch_with(bench, needed);
    let counted = bench
        .kernels()
        .sample_offsets(&neighbours, columns.rows, call.take, offsets, launch)
        .unwrap();
    if counted.bad.is_some() {
        return (counted, Default::default());
    }
    let total = counted.total as usize;
    let sizes = [total * call.columns.size_bytes(), total * 4, total * 8];
    let outputs = sizes.map(|bytes| bench.upload(&vec![0; bytes]));
    let draw = Draw {
        neighbours,
        take: call.take,
        seed: 0xfeed_f00d,
        columns: Some(&columns),
        weights: call.weights.map(|_| Weights::Mapped(&weights)),
        offsets,
        total: counted.total,
        offsets_out,
        dest: outputs[0],
        center_localid: outputs[1],
        edge_gid: outputs[2],
    };
    let needed = bench.kernels().sample_workspace_bytes(&draw).unwrap();
    let launch = launch_with(bench, needed);
    bench.kernels().sample(&draw, launch).unwrap();
    let found = [0, 1, 2].map(|i| bench.download(outputs[i], sizes[i]));
    let [dest, positions, edges] = found;
    (
        counted,
        [bench.download(offsets_out, offset_bytes), dest, positions, edges],
    )
}

#[test]
fn samples_are_those_of_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, mut noise) = (bound(0), Noise(3));
    for most in [1, 10, 32, 33, 100, 300, 1024, 1500, 2100] {
        let graph = graph(&mut noise, u64::from(most));
        for take in [Take::AtMost(most), Take::All, Take::AllAbove(most)] {
            for weights in [None, Some(DType::Float), Some(DType::Double)] {
                let narrow = noise.below(2) == 0;
                let call = Call {
                    take,
                    centers: if narrow { DType::Int } else { DType::Int64 },
                    columns: if noise.below(2) == 0 {
                        DType::Int
                    } else {
                        DType::Int64
                    },
                    weights: weights.filter(|_| matches!(take, Take::AtMost(_))),
                    ranks: [1, 3, 40][noise.below(3) as usize],
                };
                let mut on_gpu = OnGpu {
                    platform: &platform,
                    blocks: Vec::new(),
                };
                let (counted, got) = sample(&mut on_gpu, &graph, call);
                let (wanted, want) = sample(&mut OnCpu::default(), &graph, call);
                assert_eq!(counted, wanted, "{call:?}");
                assert!(
                    got[0] == want[0] && got[2] == want[2],
                    "{call:?}: offsets or places"
                );
                if call.weights.is_none() {
                    assert!(
                        got[1] == want[1] && got[3] == want[3],
                        "{call:?}: neighbours or edges"
                    );
                    continue;
                }
                // The last bits of a logarithm may order two neighbours of nearly the same key in another way.
                let differ = got[3]
                    .chunks(8)
                    .zip(want[3].chunks(8))
                    .filter(|(a, b)| a != b)
                    .count();
                assert!(
                    differ * 500 <= counted.total as usize,
                    "{call:?}: {differ} of {}",
                    counted.total
                );
            }
        }
    }
}

#[test]
fn the_first_bad_center_is_told_as_on_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, mut noise) = (bound(0), Noise(8));
    let call = Call {
        take: Take::AtMost(10),
        centers: DType::Int64,
        columns: DType::Int64,
        weights: None,
        ranks: 3,
    };
    for spoil in 0..4 {
        let mut graph = graph(&mut noise, 10);
        match spoil {
            0 => graph.centers[150] = -1,
            1 => graph.centers[33] = 400,
            2 => graph.row_pointers[8] = -7,
            _ => graph.row_pointers[8] = i64::MAX,
        }
        let mut on_gpu = OnGpu {
            platform: &platform,
            blocks: Vec::new(),
        };
        let got = sample(&mut on_gpu, &graph, call).0;
        let want = sample(&mut OnCpu::default(), &graph, call).0;
        assert!(want.bad.is_some());
        assert_eq!(got.bad, want.bad);
    }
}

fn append(bench: &mut dyn Bench, dtype: DType, targets: &[i64], neighbours: &[i64]) -> [Vec<u8>; 2] {
    let mut list = |values: &[i64]| Indices {
        address: bench.upload(&bytes_of(dtype, values)),
        dtype,
        count: values.len(),
    };
    let (targets, neighbours) = (list(targets), list(neighbours));
    let needed = bench
        .kernels()
        .append_unique_workspace_bytes(&targets, &neighbours)
        .unwrap();
    let launch = launch_with(bench, needed);
    let count = bench
        .kernels()
        .append_unique_count(&targets, &neighbours, launch)
        .unwrap();
    let sizes = [
        (targets.count + count as usize) * dtype.size_bytes(),
        neighbours.count * 4,
    ];
    let [unique, map] = sizes.map(|bytes| bench.upload(&vec![0; bytes]));
    bench
        .kernels()
        .append_unique_write(&targets, &neighbours, count, unique, map, launch)
        .unwrap();
    [bench.download(unique, sizes[0]), bench.download(map, sizes[1])]
}

#[test]
fn new_ids_and_self_loops_are_those_of_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, mut noise) = (bound(0), Noise(21));
    let on_gpu = || OnGpu {
        platform: &platform,
        blocks: Vec::new(),
    };
    for dtype in [DType::Int, DType::Int64] {
        for (targets, neighbours, range) in [
            (0, 50, 9),
            (50, 0, 9),
            (300, 40_000, 5000),
            (300, 40_000, 1 << 31),
        ] {
            let mut ids = |count| -> Vec<i64> { (0..count).map(|_| noise.below(range) as i64 - 4).collect() };
            let (targets, neighbours) = (ids(targets), ids(neighbours));
            let got = append(&mut on_gpu(), dtype, &targets, &neighbours);
            assert!(
                got == append(&mut OnCpu::default(), dtype, &targets, &neighbours),
                "{dtype} {range}"
            );
        }
    }
    for rows in [0, 1, 700] {
        let mut pointers = vec![0];
        (0..rows).for_each(|r| pointers.push(pointers[r] + noise.below(50) as i64));
        let edges = pointers[rows] as usize;
        let columns: Vec<i64> = (0..edges).map(|_| noise.below(1000) as i64).collect();
        let run = |bench: &mut dyn Bench| {
            let loops = SelfLoops {
                row_pointers: bench.upload(&bytes_of(DType::Int, &pointers)),
                rows: rows as u64,
                columns: bench.upload(&bytes_of(DType::Int, &columns)),
                edges: edges as u64,
                row_pointers_out: bench.upload(&vec![0; (rows + 1) * 4]),
                columns_out: bench.upload(&vec![0; (edges + rows) * 4]),
            };
            bench.kernels().add_self_loops(&loops, Launch::default()).unwrap();
            [
                bench.download(loops.row_pointers_out, (rows + 1) * 4),
                bench.download(loops.columns_out, (edges + rows) * 4),
            ]
        };
        assert!(run(&mut on_gpu()) == run(&mut OnCpu::default()), "{rows} rows");
    }
}
