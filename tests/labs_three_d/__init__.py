"""The 3D lab: pure theory, real ranks against one process, and broken pieces that turn its checks red."""
