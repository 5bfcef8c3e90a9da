//! Platforms of tests that are the CPU platform in most respects.

/// Of an `impl Platform`: what is the CPU platform's.
macro_rules! like_the_cpu {
    () => {
        fn name(&self) -> &'static str {
            "cpu"
        }

        fn graph(&self) -> &dyn wholegraph::platform::graph::GraphKernels {
            CpuPlatform.graph()
        }

        fn learning(&self) -> &dyn wholegraph::platform::learning::LearningKernels {
            CpuPlatform.learning()
        }

        fn caching(&self) -> &dyn wholegraph::platform::caching::CacheKernels {
            CpuPlatform.caching()
        }

        fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn wholegraph::platform::Transport>> {
            CpuPlatform.local_transport(boot)
        }

        fn can_reach(&self, address: wholegraph::span::Address) -> bool {
            CpuPlatform.can_reach(address)
        }
    };
}

/// Beside that: what moves rows, and the memory they are in.
macro_rules! moves_like_the_cpu {
    () => {
        fn segments(&self) -> &dyn wholegraph::platform::Segments {
            CpuPlatform.segments()
        }

        fn kernels(&self) -> &dyn wholegraph::platform::Kernels {
            &CpuPlatform
        }

        fn copy(
            &self,
            to: wholegraph::span::Address,
            from: wholegraph::span::Address,
            bytes: usize,
            stream: Stream,
        ) -> Result<()> {
            CpuPlatform.copy(to, from, bytes, stream)
        }
    };
}

pub(crate) use {like_the_cpu, moves_like_the_cpu};
